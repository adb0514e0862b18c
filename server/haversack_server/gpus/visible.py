"""What CUDA_VISIBLE_DEVICES leaves of the GPUs of a machine, and in which order.

Knows no NVML, and no environment. The rules are those of NVIDIA's CUDA Programming Guide ("CUDA
Environment Variables"); that a name given twice leaves no device is PyTorch's reading
(torch/cuda/__init__.py, ``_parse_visible_devices``).
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from haversack_server.gpus.nvml import Gpu

_NUMBER = re.compile(r"\d+")


class Visible(NamedTuple):
    """The GPUs that may be used, as ``cuda:0`` on; and a sentence on what was not understood."""

    gpus: tuple[Gpu, ...]
    said: tuple[str, ...] = ()


def visible(gpus: Sequence[Gpu], allowed: str | None) -> Visible:
    """Choose among ``gpus`` as CUDA would by ``allowed``, the variable's value; None allows all.

    A name that fits none ends the list, and -1 does so by intent. One that is there twice leaves
    none. A GPU that is divided stands for all of its instances, where CUDA takes the first alone.
    """
    if allowed is None:
        return Visible(tuple(gpus))
    chosen: list[Gpu] = []
    said: tuple[str, ...] = ()
    for name in filter(None, (each.strip() for each in allowed.split(","))):
        found = _named(gpus, name)
        if not found:
            said = () if name == "-1" else (_unknown(name),)
            break
        chosen += found
    if len(set(chosen)) < len(chosen):
        return Visible(
            (), (f"CUDA_VISIBLE_DEVICES={allowed} names a GPU twice, which leaves none",)
        )
    return Visible(tuple(chosen), said)


def _named(gpus: Iterable[Gpu], name: str) -> list[Gpu]:
    """Find what one name of the variable means: a number, or the beginning of one UUID."""
    if _NUMBER.fullmatch(name):
        return [gpu for gpu in gpus if gpu.index == int(name)]
    parts = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    wholes = [gpu for gpu in gpus if gpu.parent_uuid.startswith(name)]
    uuids = {gpu.uuid for gpu in parts} | {gpu.parent_uuid for gpu in wholes}
    return parts + wholes if len(uuids) == 1 else []


def _unknown(name: str) -> str:
    return (
        f"CUDA_VISIBLE_DEVICES has {name}, which names no GPU of this machine or more than one: it "
        "and what follows are left out, as CUDA does"
    )
