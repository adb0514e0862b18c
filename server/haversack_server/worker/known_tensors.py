"""How a tensor is known from one look at it to the next: small by its content, large by version.

Kernels that write a small buffer (batch norm's) need not count it as written, and to digest a large
tensor at every look takes long.
"""

import weakref
from dataclasses import dataclass

import torch
from torch.nn.parameter import is_lazy

from haversack_server.worker import reach

_SMALL_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Known:
    """What a tensor was and held at a version of it; ``version`` is None where it counts none."""

    tensor: weakref.ref[torch.Tensor]
    version: int | None
    said: str

    def still_holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the same one, and nothing was written to it that counts."""
        is_same = self.tensor() is tensor and self.version is not None
        return is_same and self.version == version_of(tensor)


def known(tensor: torch.Tensor) -> Known:
    """Look at a tensor, however large."""
    said = " ".join(reach.tensor_digest(tensor))
    return Known(weakref.ref(tensor), version_of(tensor), said)


def spelled(tensor: torch.Tensor) -> tuple[str, bool]:
    """Spell what a tensor is, with its content if it is small; and say whether it is large."""
    is_large = not is_lazy(tensor) and tensor.numel() * tensor.element_size() > _SMALL_BYTES
    return " ".join(reach.tensor_digest(tensor, skip_content=is_large)).strip(), is_large


def version_of(tensor: torch.Tensor) -> int | None:
    """Count the writes to a tensor; None for one that counts none, or has no shape yet."""
    return None if is_lazy(tensor) or tensor.is_inference() else tensor._version
