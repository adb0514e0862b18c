"""The first operation of a replay that is not its forward's, and the class of its cause.

Compares records of operations, without torch. The scan is linear: all operations before the first
that differs had equal results, so an input that differs there was not made in the region.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haversack.verify import DifferenceCause, FirstDifference


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRecord:
    """A tensor at one moment: shape, dtype and device; its content as a digest, "" if unknown.

    ``name`` is the parameter or buffer that it is, if it is one. ``is_unwritten`` says that no
    operation is known to have written it: it is new, or was there before and came as a storage.
    """

    about: str
    content: str = ""
    name: str = ""
    is_unwritten: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation: where it was called, what went in, what came out or was raised."""

    name: str
    module: str = ""
    file: str = ""
    line: int = 0
    given: tuple[TensorRecord, ...] = ()
    arguments: str = ""
    made: tuple[TensorRecord, ...] = ()
    is_random: bool = False
    has_generator: bool = False
    raised: str = ""


def first_difference(
    region: str, forward: Sequence[Operation], replay: Sequence[Operation]
) -> FirstDifference | None:
    """Find the first operation of a replay that is not the forward's; None if there is none."""
    for place, (one, other) in enumerate(zip(forward, replay, strict=False)):
        if one.name != other.name and _has_all(replay[place:], forward[place:]):
            detail = f"Operation {place + 1} of the replay, which its forward does not run"
            return _at(region, other, DifferenceCause.EXTRA_OPERATIONS, detail)
        found = _cause(one, other, forward[place + 1 :])
        if found is not None:
            cause, detail = found
            return _at(region, one, cause, f"Operation {place + 1} of the region: {detail}")
    if len(replay) < len(forward):
        detail = f"The replay ends after {len(replay)} of {len(forward)} operations"
        return _at(region, forward[len(replay)], DifferenceCause.MISSING_OPERATIONS, detail)
    if len(replay) > len(forward):
        detail = f"The replay runs {len(replay)} operations in place of {len(forward)}"
        return _at(region, replay[len(forward)], DifferenceCause.EXTRA_OPERATIONS, detail)
    return None


def _has_all(replay: Sequence[Operation], forward: Sequence[Operation]) -> bool:
    """Whether a replay runs all operations of a forward in their order, and others between.

    Those on tensors of other shapes are not the forward's.
    """
    replayed = map(_called, replay)
    return all(_called(operation) in replayed for operation in forward)


def _called(operation: Operation) -> tuple[str, tuple[str, ...]]:
    return operation.name, tuple(tensor.about for tensor in operation.given)


def _at(region: str, at: Operation, cause: DifferenceCause, detail: str) -> FirstDifference:
    return FirstDifference(
        region=region,
        module=at.module,
        operation=at.name,
        file=at.file,
        line=at.line,
        cause=cause,
        detail=detail,
    )


def _cause(
    one: Operation, other: Operation, later: Sequence[Operation]
) -> tuple[DifferenceCause, str] | None:
    if one.name != other.name:
        return (
            DifferenceCause.CONTROL_FLOW,
            f"{one.name} in the forward, {other.name} in the replay{_elsewhere(one, other)}",
        )
    shape = _shape(one.given, other.given)
    if shape:
        return DifferenceCause.SHAPE, f"its input is {shape} in the replay"
    if one.arguments != other.arguments:
        return (
            DifferenceCause.SCALAR_ARGUMENT,
            f"{one.arguments} in the forward, {other.arguments} in the replay",
        )
    changed = _changed(one.given, other.given)
    if changed:
        return DifferenceCause.EXTERNAL_TENSOR, f"{changed} in the replay"
    if other.raised and not one.raised:
        return DifferenceCause.MISSING_OPERATIONS, f"it raises in the replay: {other.raised}"
    return _result_cause(one, other, later)


def _elsewhere(one: Operation, other: Operation) -> str:
    """Tell the place of an operation that the replay runs in another place."""
    if not other.file or (one.file, one.line) == (other.file, other.line):
        return ""
    return f", at line {other.line} of {other.file}"


def _result_cause(
    one: Operation, other: Operation, later: Sequence[Operation]
) -> tuple[DifferenceCause, str] | None:
    shape = _shape(one.made, other.made)
    if shape:
        return DifferenceCause.SHAPE, f"its result is {shape} in the replay"
    if not _changed(one.made, other.made):
        return None
    editor = _editor(other, later)
    if editor:
        return (
            DifferenceCause.EXTERNAL_TENSOR,
            f"its result was saved by a policy, and then edited in place by {editor}",
        )
    if one.has_generator:
        return DifferenceCause.RNG_GENERATOR, "its own generator has moved on since the forward"
    if one.is_random:
        return DifferenceCause.RNG, "it draws other random numbers in the replay"
    # An operation in place may write the first without reading it, new or not.
    read = one.given[1:] if _is_in_place(one) else one.given
    if any(tensor.is_unwritten for tensor in read):
        return (
            DifferenceCause.EXTERNAL_TENSOR,
            "it reads memory that has other values, and that no operation is known to have written",
        )
    return DifferenceCause.NONDETERMINISTIC_KERNEL, "equal inputs have another result"


def _editor(replayed: Operation, later: Sequence[Operation]) -> str:
    """Name the in-place operation of the forward that made what the replay has as a result."""
    made = {(tensor.about, tensor.content) for tensor in replayed.made if tensor.content}
    for operation in later:
        edited = {(tensor.about, tensor.content) for tensor in operation.made}
        if _is_in_place(operation) and made & edited:
            return operation.name
    return ""


def _is_in_place(operation: Operation) -> bool:
    return operation.name.partition(".")[2].partition(".")[0].endswith("_")


def _shape(one: Sequence[TensorRecord], other: Sequence[TensorRecord]) -> str:
    if len(one) != len(other):
        return f"{len(one)} tensors in the forward, {len(other)}"
    for mine, theirs in zip(one, other, strict=True):
        if mine.about != theirs.about:
            return f"{mine.about} in the forward, {theirs.about}"
    return ""


def _changed(one: Sequence[TensorRecord], other: Sequence[TensorRecord]) -> str:
    for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        # Content that nothing had written yet is not known, and compares with everything.
        if mine.content and theirs.content and mine.content != theirs.content:
            if mine.name and theirs.name and mine.name != theirs.name:
                return f"{theirs.name} comes in place of {mine.name}"
            whose = "which no operation of the region on its own thread wrote"
            return f"{mine.name or f'tensor argument {place + 1}, {whose},'} has other values"
    return ""
