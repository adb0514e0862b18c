"""Tells rounding from a bug, where two gradients differ by more than the tolerance of their dtype.

Sums in another order leave another last bit of what they add up, which may be far larger than what
is left in the end. How large that can be is no proof: in bfloat16 a gradient that is lost may be
smaller. So what differs must look like rounding too, and have no direction. Whether anything but
rounding can differ in a run at all is decided in ``haversack_server.verify.rewritten``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# In last bits (eps). Measured on five small encoder-decoders of transformers under the reentrant
# variant, whose sums have another order, with 16 to 65 seeds each: key biases are at most 2.8
# (float32) and 2.0 (bfloat16) of the largest gradient of their module, and values of bfloat16 off
# by 2.6 of the largest of their tensor.
_MOST_OF_MODULE = 8.0  # and no more than the relative tolerance
_MOST_OF_TENSOR = 3.0
# The cosine between a difference and what differs: -1 where it is lost or flipped, 1 where it is
# scaled, -0.71 where both are rounding of one size. In those models it is 0.94 at most.
_MOST_COSINE = 0.98
_FEWEST_VALUES = 32
# Rounding gives an exact 0 as often on one side as on the other: in those models a quarter of the
# values of a key bias are 0 on one of them.
_MOST_LOST = 3 / 8
_FEW_LOST = 2
_MOST_DEVIATIONS = 3  # of a count that is as often on one side as on the other


@dataclass(slots=True)
class Modules:
    """Knows the largest of ``gradients``, each and by its module; looks at each but once."""

    gradients: Mapping[str, Any]
    _members: dict[str, list[str]] = field(default_factory=dict)
    _sizes: dict[str, float] = field(default_factory=dict)
    _largest: dict[str, float] = field(default_factory=dict)

    def size_of(self, name: str) -> float:
        """Give the largest magnitude of one."""
        if name not in self._sizes:
            self._sizes[name] = largest(self.gradients[name])
        return self._sizes[name]

    def largest_beside(self, name: str) -> float:
        """Give the largest of a parameter's module; 0 where its name is not one that modules give.

        Weights in a list, a ParameterList too, lie beside each other and have no size in common.
        """
        module, _, own = name.rpartition(".")
        if not own.isidentifier():
            return 0.0
        if module not in self._largest:
            sizes = map(self.size_of, self._of(module))
            self._largest[module] = max((s for s in sizes if math.isfinite(s)), default=0.0)
        return self._largest[module]

    def _of(self, module: str) -> list[str]:
        if not self._members:
            for name, each in self.gradients.items():
                if isinstance(each, torch.Tensor):
                    self._members.setdefault(name.rpartition(".")[0], []).append(name)
        return self._members.get(module, [])


def largest(tensor: torch.Tensor) -> float:
    """Give the largest magnitude in a tensor; 0 where it is empty."""
    dense = tensor.detach()
    dense = dense if dense.layout is torch.strided else dense.to_dense()
    if not dense.numel():
        return 0.0
    if dense.is_complex():
        return float(dense.abs().max())
    low, high = torch.aminmax(dense)  # takes no second tensor of this size, as abs() does
    return max(-float(low), float(high))


def nearly_zero(dtype: torch.dtype, relative: float, beside: float) -> float:
    """Give how large a gradient may be that is nothing but rounding beside a larger one."""
    return min(relative, _MOST_OF_MODULE * torch.finfo(dtype).eps) * beside


def may_be(
    difference: float, size: float, dtype: torch.dtype, relative: float, zero: float
) -> bool:
    """Whether two gradients are near enough for what follows, by their largest difference.

    ``size`` is the largest of the plain one; a bug's difference is mostly far beyond both limits.
    """
    last_bits = (relative + _MOST_OF_TENSOR * torch.finfo(dtype).eps) * size
    return difference <= last_bits or size <= zero


def may_have_grown(difference: float, size: float, dtype: torch.dtype) -> bool:
    """Whether a difference is in the last half of the digits of the largest value."""
    return difference <= math.sqrt(torch.finfo(dtype).eps) * size


def has_no_direction(plain: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a difference that may have grown points along no gradient, and loses no part of one.

    Values are 0 on either side as often as chance has it.
    """
    first, second = _lost(plain, other)
    by_chance = _FEW_LOST + _MOST_DEVIATIONS * math.sqrt(first + second)
    return abs(first - second) <= by_chance and not _have_direction(plain, other)


def is_noise(plain: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two gradients that are nothing but rounding differ as rounding does."""
    return not (_are_lost(plain, other) or _have_direction(plain, other))


def is_last_bit(
    plain: torch.Tensor, other: torch.Tensor, relative: float, outside: torch.Tensor
) -> bool:
    """Whether values ``outside`` a tolerance are last bits of the largest away, as rounding is.

    Of a few values nothing can be said but how large they are.
    """
    apart = (other - plain).abs()
    most = _MOST_OF_TENSOR * torch.finfo(plain.dtype).eps * largest(plain)
    if not bool((apart <= relative * plain.abs() + most).all()):
        return False
    one, two = plain[outside], other[outside]
    directed = one.numel() >= _FEWEST_VALUES and _have_direction(one, two)
    return not (directed or _are_lost(one, two))


def _are_lost(plain: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a part is 0 on one side, and more often than on the other."""
    first, second = _lost(plain, other)
    return abs(first - second) > max(_FEW_LOST, _MOST_LOST * plain.numel())


def _lost(plain: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    """Count the values that are 0 on one side alone, on each.

    What is no normal number is taken for 0: a type with a small range has no more of it.
    """
    least = torch.finfo(plain.dtype).smallest_normal
    first = int(((plain == 0) & (other.abs() >= least)).sum())
    second = int(((other == 0) & (plain.abs() >= least)).sum())
    return first, second


def _have_direction(plain: torch.Tensor, other: torch.Tensor) -> bool:
    one, two = plain.double().flatten(), other.double().flatten()
    apart = two - one
    return any(abs(_cosine(apart, each)) > _MOST_COSINE for each in (one, two))


def _cosine(one: torch.Tensor, two: torch.Tensor) -> float:
    both = float(one.norm() * two.norm())
    return float(one @ two) / both if both else 1.0  # beside nothing, all is a direction
