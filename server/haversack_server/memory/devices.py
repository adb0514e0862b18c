"""The catalogue of devices: marketed and usable bytes, rates, each with its source.

Package data, ``devices.json``. Usable bytes are what PyTorch reports as the device's total, which
is less than what is marketed or what nvidia-smi shows; rates are those of dense products, bf16
where the device has it, else fp16. Knows nothing of runs.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from haversack import checks
from haversack.errors import InvalidRequestError
from haversack.run import Device

FIELD = "device.name"
PACKAGE = "haversack_server.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One device as ``devices.json`` states it; no bf16 rate where it has no such kernels."""

    name: str
    aliases: tuple[str, ...]
    title: str
    marketed_bytes: int
    usable_bytes: int
    usable_source: str
    bf16_flops_per_s: int | None
    fp16_flops_per_s: int
    fp32_flops_per_s: int
    bytes_per_s: int
    source: str

    @property
    def flops_per_s(self) -> int:
        """The rate of matrix products in half precision."""
        return self.bf16_flops_per_s or self.fp16_flops_per_s


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Return every device by name."""
    text = (files(PACKAGE) / "devices.json").read_text(encoding="utf-8")
    rows = json.loads(text)["devices"]
    entries = [CatalogueEntry(**{**row, "aliases": tuple(row["aliases"])}) for row in rows]
    return MappingProxyType({entry.name: entry for entry in entries})


@cache
def _by_spelling() -> Mapping[str, CatalogueEntry]:
    spelled = {
        _plain(name): entry
        for entry in catalogue().values()
        for name in (entry.name, *entry.aliases)
    }
    return MappingProxyType(spelled)


def find(name: str) -> CatalogueEntry | None:
    """Find a device by any of its names, in any case, with or without dashes and the maker."""
    return _by_spelling().get(_plain(name))


def named(device: Device) -> tuple[Device, tuple[str, ...]]:
    """Fill in what a device's name says and the request does not; gives what to say of it.

    An unknown name is refused with near matches, unless the request gives the memory itself.
    """
    if not device.name:
        return device, ()
    entry = find(device.name)
    if entry is None:
        if device.memory_bytes is not None:
            return device, ()
        raise InvalidRequestError(
            f"{checks.shortly(device.name)} is not in the catalogue; {_near(device.name)},"
            " or give its memory_bytes too (--gpu-memory)",
            field=FIELD,
        )
    filled = replace(
        device,
        memory_bytes=device.memory_bytes or entry.usable_bytes,
        flops_per_s=device.flops_per_s or entry.flops_per_s,
        bytes_per_s=device.bytes_per_s or entry.bytes_per_s,
    )
    return filled, _said(device, entry)


def _said(device: Device, entry: CatalogueEntry) -> tuple[str, ...]:
    said = []
    if device.memory_bytes is None:
        said.append(f"usable bytes of {entry.title}: {entry.usable_bytes:,}; {entry.usable_source}")
    if device.flops_per_s is None or device.bytes_per_s is None:
        rates = f"{entry.flops_per_s / 1e12:g} TFLOP/s, {entry.bytes_per_s / 1e9:g} GB/s"
        said.append(f"rates of {entry.title}: {rates}; {entry.source}")
    return tuple(said)


def _near(name: str) -> str:
    """Offer the devices whose names are closest, or all of them."""
    plain = _plain(name)
    starting = [
        entry.name for entry in catalogue().values() if _plain(entry.name).startswith(plain)
    ]
    if plain and starting:
        return f"did you mean {' or '.join(starting)}"
    names = [spelled for entry in catalogue().values() for spelled in (entry.name, *entry.aliases)]
    close = difflib.get_close_matches(name.lower()[:60], names, n=3, cutoff=0.5)
    found = sorted({entry.name for each in close if (entry := find(each))})
    if found:
        return f"did you mean {' or '.join(found)}"
    return f"use one of {', '.join(catalogue())}"


def _plain(name: str) -> str:
    """Spell a name without the maker and what parts its words."""
    words = re.sub(r"\b(nvidia|amd|geforce|tesla|instinct)\b", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", words)
