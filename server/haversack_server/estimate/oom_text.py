"""The text of an out-of-memory error as figures, in PyTorch's wordings from 1.0 on.

Read in c10/cuda/CUDACachingAllocator.cpp and aten/src/ATen/mps/MPSAllocator.mm of several releases;
HIP and XPU have CUDA's wording:

    1.0   (GPU 0; 11.17 GiB total capacity; 10.6 GiB already allocated; 5.5 MiB free; 2 MiB cached)
    1.4   (...; 5.56 MiB free; 10.80 GiB reserved in total by PyTorch)
    2.1   GPU 0 has a total capacty of 39.39 GiB of which 9.42 GiB is free. [...] this process has
          29.96 GiB memory in use. Of the allocated memory 28.1 GiB is allocated by PyTorch, and
          1.3 GiB is reserved by PyTorch but unallocated.
    MPS   (MPS allocated: 17.0 GB, other allocations: 1.0 GB, max allowed: 18.1 GB)

Sizes are printed with a few decimals, in powers of 1024 whatever the unit's spelling. Knows nothing
of models.
"""

import re
from dataclasses import dataclass, fields, replace

from haversack.errors import InvalidRequestError
from haversack.questions import OutOfMemory
from haversack.units import GIB, KIB, MIB, TIB

_UNITS = {"b": 1, "byte": 1, "bytes": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_SIZE = r"(\d{1,15}(?:\.\d{1,9})?)\s*(bytes?|[KMGT]i?B|B)"
_PATTERNS = {
    "requested_bytes": (rf"[Tt]ried to allocate {_SIZE}",),
    "total_bytes": (rf"total capac(?:i)?ty of {_SIZE}", rf"{_SIZE} total capacity"),
    "free_bytes": (rf"of which {_SIZE} is free", rf"{_SIZE} free"),
    "process_bytes": (rf"this process has {_SIZE} memory in use",),
    "allocated_bytes": (
        rf"{_SIZE} is allocated by PyTorch",
        rf"{_SIZE} already allocated",
        rf"MPS allocated: {_SIZE}",
    ),
    "unallocated_bytes": (
        rf"{_SIZE} is reserved by PyTorch but unallocated",
        rf"{_SIZE} cached\b",
    ),
    "allowed_bytes": (rf"max allowed: {_SIZE}", rf"{_SIZE} allowed\b"),
}
_RESERVED = rf"{_SIZE} reserved in total by PyTorch"
_DEVICE = re.compile(r"\b(?:GPU|XPU|HIP device) (\d{1,4})\b")
_EXAMPLE = "Tried to allocate 9.47 GiB. GPU 0 has a total capacity of 79.15 GiB of which ..."


@dataclass(frozen=True, slots=True)
class ReadError:
    """The figures of an error, and how far the requested bytes may be from what was printed."""

    figures: OutOfMemory
    half_digit_bytes: int


def read_error(given: OutOfMemory) -> ReadError:
    """Read the text, under the figures that were given beside it.

    Raises InvalidRequestError where neither says how many bytes were asked for.
    """
    read: dict[str, int] = {}
    half_digit = 0
    for name, patterns in _PATTERNS.items():
        found = next((match for each in patterns if (match := re.search(each, given.text))), None)
        if found is not None:
            read[name] = _bytes(*found.groups())
            if name == "requested_bytes":
                half_digit = _half_digit(*found.groups())
    reserved = re.search(_RESERVED, given.text)
    if reserved and "allocated_bytes" in read:
        read["unallocated_bytes"] = max(0, _bytes(*reserved.groups()) - read["allocated_bytes"])
    device = _DEVICE.search(given.text)
    if device:
        read["device_index"] = int(device[1])
    figures = replace(_under(given, read), text="")
    return ReadError(figures, 0 if given.requested_bytes else half_digit)


def _under(given: OutOfMemory, read: dict[str, int]) -> OutOfMemory:
    """Fill what was not given with what was read."""
    names = {each.name for each in fields(given)} & read.keys()
    missing = {name: read[name] for name in names if getattr(given, name) is None}
    made = replace(given, **missing)  # type: ignore[arg-type]  # integers all
    if made.requested_bytes is None:
        sentence = (
            f"no 'Tried to allocate' with a size was found in it; give the line of the error, such "
            f"as '{_EXAMPLE}'"
        )
        raise InvalidRequestError(sentence, field="oom.text")
    return made


def _bytes(figure: str, unit: str) -> int:
    return int(float(figure) * _scale(unit) + 0.5)


def _half_digit(figure: str, unit: str) -> int:
    """Half a unit of the last digit that was printed."""
    decimals = len(figure.partition(".")[2])
    return int(_scale(unit) // (2 * 10**decimals))


def _scale(unit: str) -> int:
    return _UNITS[unit.lower()] if unit.lower() in _UNITS else _UNITS[unit[0].lower()]
