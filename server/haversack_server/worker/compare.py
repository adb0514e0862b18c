"""Compares the values of two runs: tensors bit for bit, then within the tolerance of their dtype.

A gradient that is None is not a gradient of zeros; one that differs by rounding alone is close, and
marked. What rows mean for a facet is decided in ``haversack_server.verify.comparison``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from haversack.verify import Facet
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.worker import rounding, tensor_parts

# Relative and absolute, as torch.testing.assert_close has them. The absolute part is for values of
# about 1: gradients may be far smaller, so it shrinks with the largest value of the plain tensor.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
_GRADIENTS = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
_FEW = 2**15  # values, of which to look at the first alone saves nothing


def rows(
    facet: Facet,
    plain: Mapping[str, Any],
    other: Mapping[str, Any],
    where: str = "in the plain run",
) -> Iterator[Row]:
    """Compare values by name; gives a row for each that is not equal bit for bit.

    ``where`` says what the first values are of.
    """
    missing = object()
    modules = rounding.Modules(plain if facet is Facet.PARAMETER_GRADIENTS else {})
    for name in sorted(plain.keys() | other.keys()):
        row = _compare(facet, name, plain.get(name, missing), other.get(name, missing), where)
        if row is None:
            continue
        if facet in _GRADIENTS and _is_far(row, plain.get(name)):
            row = _unless_rounding(row, plain[name], other[name], modules)
        yield row


def _compare(facet: Facet, name: str, plain: Any, other: Any, where: str) -> Row | None:
    if isinstance(plain, torch.Tensor) and isinstance(other, torch.Tensor):
        return _compare_tensors(facet, name, plain.detach(), other.detach(), where)
    if type(plain) is type(other) and plain == other:
        return None
    note = f"{_word(plain)} {where}, {_word(other)} in this one"
    return Row(facet=facet, name=name, closeness=Closeness.DIFFERENT, note=note)


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, str):
        return str(value)
    return "nothing"


def _compare_tensors(
    facet: Facet, name: str, plain: torch.Tensor, other: torch.Tensor, where: str
) -> Row | None:
    if any(map(_is_vast_as_array, (plain, other))):
        return _compare_parts(facet, name, plain, other, where)
    plain, other = map(_dense, _unrepeated(plain, other))
    for aspect in ("dtype", "shape"):
        one, two = getattr(plain, aspect), getattr(other, aspect)
        if one != two:
            note = f"{aspect} {_spelled(one)} {where}, {_spelled(two)} in this one"
            return Row(facet=facet, name=name, closeness=Closeness.DIFFERENT, note=note)
    if _bits_equal(plain, other):
        return None
    difference = _max_difference(plain, other)
    closeness, note = _closeness(plain, other)
    return Row(
        facet=facet,
        name=name,
        closeness=closeness,
        max_difference=difference,
        note=f"largest difference {difference:.3g}, {note}",
    )


def _unrepeated(plain: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give what both repeat in the same way, having been expanded, once."""
    places = tensor_parts.repeated(plain)
    if not places or plain.shape != other.shape or places != tensor_parts.repeated(other):
        return plain, other
    return tensor_parts.unrepeated(plain), tensor_parts.unrepeated(other)


def _is_vast_as_array(tensor: torch.Tensor) -> bool:
    return tensor.layout is not torch.strided and tensor_parts.is_vast(tensor)


def _compare_parts(
    facet: Facet, name: str, plain: torch.Tensor, other: torch.Tensor, where: str
) -> Row | None:
    """Compare tensors that are too large as arrays by what they consist of."""
    one, two = (
        {"": _of_no_part(each), **dict(tensor_parts.parts(each))} for each in (plain, other)
    )
    for part in one | two:
        row = _compare(facet, name, one.get(part), two.get(part), where)
        if row is not None:
            said = f"{part}: {row.note}" if part else row.note
            # What has a size is looked at again, as an array.
            size = None if row.closeness is Closeness.DIFFERENT else row.max_difference
            return replace(row, max_difference=size, note=said)
    return None


def _of_no_part(tensor: torch.Tensor) -> str:
    return f"{tensor.layout} of shape {tuple(tensor.shape)}"


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor_parts.dense_part(tensor).cpu()


def _spelled(aspect: Any) -> str:
    return str(tuple(aspect)) if isinstance(aspect, torch.Size) else str(aspect)


def _bits_equal(plain: torch.Tensor, other: torch.Tensor) -> bool:
    # Bits, since equal() takes no NaN for equal and takes -0.0 for 0.0.
    one, two = (tensor_parts.row(t.resolve_conj().resolve_neg()) for t in (plain, other))
    one, two = one.view(torch.uint8), two.view(torch.uint8)
    if all(t.numel() % 8 == t.storage_offset() % 8 == 0 for t in (one, two)):
        # Words take a sixth of the time of bytes: 3.3 and 18.7 ms for 28 MB.
        one, two = one.view(torch.int64), two.view(torch.int64)
    return torch.equal(one, two)


def _max_difference(plain: torch.Tensor, other: torch.Tensor) -> float:
    if not plain.numel():
        return 0.0
    if plain.dtype is not torch.float32:  # which is wide enough, and most of what is compared
        wide = torch.complex128 if plain.is_complex() else torch.float64
        plain, other = plain.to(wide), other.to(wide)
    apart = plain - other
    largest = rounding.largest(apart)
    if math.isnan(largest):
        both_nan = plain.isnan() & other.isnan()
        largest = rounding.largest(apart.masked_fill(both_nan, 0.0))
    return math.inf if math.isnan(largest) else largest


def _closeness(plain: torch.Tensor, other: torch.Tensor) -> tuple[Closeness, str]:
    if plain.dtype not in TOLERANCES:
        return Closeness.DIFFERENT, f"{plain.dtype} must be equal"
    relative, absolute = TOLERANCES[plain.dtype]
    absolute *= _scale(plain)
    close = _all_close(plain, other, relative, absolute)
    word = "inside" if close else "outside"
    note = f"{word} the tolerance of {plain.dtype} (relative {relative:g}, absolute {absolute:.2g})"
    return (Closeness.CLOSE if close else Closeness.DIFFERENT), note


def _all_close(plain: torch.Tensor, other: torch.Tensor, relative: float, absolute: float) -> bool:
    """Do what ``allclose`` does, in a fifth of its time where all differences are finite.

    In a hundredth where the first values are not close: what differs mostly does so everywhere.
    """
    if plain.numel() > _FEW and plain.is_contiguous() and other.is_contiguous():
        one, two = (each.flatten()[: _FEW // 8] for each in (plain, other))
        if not _all_close(one, two, relative, absolute):
            return False
    apart = other - plain
    if plain.numel() and math.isfinite(rounding.largest(apart)):
        apart = apart.abs() if apart.is_complex() else apart.abs_()  # their sizes are no complex
        return bool((apart <= plain.abs().mul_(relative).add_(absolute)).all())
    return torch.allclose(other, plain, rtol=relative, atol=absolute, equal_nan=True)


def _scale(plain: torch.Tensor) -> float:
    """Give the largest magnitude of a tensor, at most 1; 1 too where it is not finite."""
    largest = rounding.largest(plain) if plain.numel() else 1.0
    return min(1.0, largest) if math.isfinite(largest) else 1.0


def _is_far(row: Row, plain: Any) -> bool:
    """Whether real numbers are outside the tolerance of their type, and finitely far."""
    if row.closeness is not Closeness.DIFFERENT or row.max_difference is None:
        return False
    return bool(math.isfinite(row.max_difference) and plain.is_floating_point())


def _unless_rounding(
    row: Row, plain: torch.Tensor, other: torch.Tensor, modules: rounding.Modules
) -> Row:
    """Take a gradient for close, and mark it, that differs as rounding beside larger values does.

    That of an attention's key bias is 0, since softmax takes no notice of it: what is left has the
    size of a last bit of what was added up, which the weight's gradient shows.
    """
    plain, other = _dense(plain.detach()), _dense(other.detach())
    if plain.dtype not in TOLERANCES:
        return row
    relative, absolute = TOLERANCES[plain.dtype]
    zero = rounding.nearly_zero(plain.dtype, relative, modules.largest_beside(row.name))
    size = modules.size_of(row.name) if row.name in modules.gradients else rounding.largest(plain)
    difference = row.max_difference or 0.0
    if not rounding.may_be(difference, size, plain.dtype, relative, zero):
        return _perhaps_grown(row, plain, other, size)
    outside = (other - plain).abs() > relative * plain.abs() + absolute * _scale(plain)
    if rounding.is_last_bit(plain, other, relative, outside):
        return _marked(row, "within last bits of the largest value")
    if max(size, rounding.largest(other)) > zero or not rounding.is_noise(plain, other):
        return _perhaps_grown(row, plain, other, size)
    said = f"both are 0 within {zero:.2g}, rounding of the largest gradient of their module"
    return _marked(row, said)


def _perhaps_grown(row: Row, plain: torch.Tensor, other: torch.Tensor, size: float) -> Row:
    """Mark a gradient that rounding may have moved so far, which only further runs can show."""
    is_small = rounding.may_have_grown(row.max_difference or 0.0, size, plain.dtype)
    return replace(row, has_no_direction=is_small and rounding.has_no_direction(plain, other))


def _marked(row: Row, said: str) -> Row:
    note = f"largest difference {row.max_difference:.3g}: {said}"
    return replace(row, closeness=Closeness.CLOSE, note=note, is_rounding=True)
