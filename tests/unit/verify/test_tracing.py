"""The first operation that differs, and the class of its cause; written by hand, no torch."""

from dataclasses import replace

import pytest

from haversack.verify import DifferenceCause
from haversack_server.verify.tracing import Operation, TensorRecord, first_difference

X = TensorRecord(about="float32 (2,)", content="x")
Y = TensorRecord(about="float32 (2,)", content="y")
UNWRITTEN = TensorRecord(about="float32 (2,)")
MUL = Operation(name="aten.mul.Tensor", given=(X,), arguments="[2]", made=(Y,), line=7)
SIN = replace(MUL, name="aten.sin.default", arguments="[]")
OTHER = replace(X, content="other")


@pytest.mark.parametrize(
    ("operation", "replayed", "cause"),
    [
        (MUL, SIN, DifferenceCause.CONTROL_FLOW),
        (MUL, replace(MUL, arguments="[3]"), DifferenceCause.SCALAR_ARGUMENT),
        (MUL, replace(MUL, given=(OTHER,)), DifferenceCause.EXTERNAL_TENSOR),
        (
            MUL,
            replace(MUL, given=(replace(X, about="float32 (1,)"),)),
            DifferenceCause.SHAPE,
        ),
        (MUL, replace(MUL, given=(X, X)), DifferenceCause.SHAPE),
        (MUL, replace(MUL, made=(replace(X, about="float64 (2,)"),)), DifferenceCause.SHAPE),
        (
            MUL,
            replace(MUL, made=(), raised="RuntimeError: edited"),
            DifferenceCause.MISSING_OPERATIONS,
        ),
        (MUL, replace(MUL, made=(OTHER,)), DifferenceCause.NONDETERMINISTIC_KERNEL),
        (
            replace(MUL, is_random=True),
            replace(MUL, is_random=True, made=(OTHER,)),
            DifferenceCause.RNG,
        ),
        (
            replace(MUL, is_random=True, has_generator=True),
            replace(MUL, is_random=True, has_generator=True, made=(OTHER,)),
            DifferenceCause.RNG_GENERATOR,
        ),
    ],
)
def test_the_cause_follows_from_what_is_not_the_same(
    operation: Operation, replayed: Operation, cause: DifferenceCause
) -> None:
    found = first_difference("block", [SIN, operation], [SIN, replayed])
    assert found is not None
    assert found.cause is cause
    assert (found.region, found.operation, found.line) == ("block", operation.name, 7)
    assert found.detail.startswith("Operation 2 of the region: ")


def test_the_first_difference_is_told_and_not_what_follows_from_it() -> None:
    changed = replace(MUL, given=(OTHER,), made=(OTHER,))
    found = first_difference("block", [MUL, SIN], [changed, replace(SIN, given=(OTHER,))])
    assert found is not None
    assert found.operation == "aten.mul.Tensor"


def test_a_changed_buffer_is_told_by_its_name() -> None:
    before, after = replace(X, name="buffer mean"), replace(OTHER, name="buffer mean")
    one, other = replace(MUL, given=(before,)), replace(MUL, given=(after,))
    found = first_difference("block", [one], [other])
    assert found is not None
    assert "buffer mean has other values" in found.detail


def test_another_parameter_is_told_from_one_that_changed() -> None:
    mine, theirs = replace(X, name="parameter a"), replace(OTHER, name="parameter b")
    one, other = replace(MUL, given=(mine,)), replace(MUL, given=(theirs,))
    found = first_difference("block", [one], [other])
    assert found is not None
    assert found.cause is DifferenceCause.EXTERNAL_TENSOR
    assert found.detail.endswith("parameter b comes in place of parameter a in the replay")


def test_memory_that_nothing_has_written_compares_with_everything() -> None:
    one, other = replace(MUL, given=(UNWRITTEN,)), replace(MUL, given=(OTHER,))
    assert first_difference("block", [one], [other]) is None


def test_what_came_as_a_storage_is_not_taken_for_an_equal_input() -> None:
    unknown = replace(UNWRITTEN, is_unwritten=True)
    copied = Operation(name="aten.copy_.default", given=(X, unknown), made=(X,))
    found = first_difference("block", [copied], [replace(copied, made=(OTHER,))])
    assert found is not None
    assert found.cause is DifferenceCause.EXTERNAL_TENSOR


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("aten.mul.Tensor", DifferenceCause.EXTERNAL_TENSOR),
        ("aten.mul_.Tensor", DifferenceCause.NONDETERMINISTIC_KERNEL),
    ],
)
def test_unwritten_memory_that_is_read_first_is_no_equal_input(
    name: str, cause: DifferenceCause
) -> None:
    given = (replace(UNWRITTEN, is_unwritten=True), X)
    operation = replace(MUL, name=name, given=given)
    found = first_difference("block", [operation], [replace(operation, made=(OTHER,))])
    assert found is not None
    assert found.cause is cause


def test_a_replay_of_another_length_is_told() -> None:
    shorter = first_difference("block", [MUL, SIN], [MUL])
    assert shorter is not None
    assert shorter.cause is DifferenceCause.MISSING_OPERATIONS
    assert shorter.operation == "aten.sin.default"
    longer = first_difference("block", [MUL], [MUL, SIN])
    assert longer is not None
    assert longer.cause is DifferenceCause.EXTRA_OPERATIONS
    assert first_difference("block", [MUL], [MUL]) is None


def test_what_a_replay_runs_between_the_operations_of_its_forward_is_told_at_its_own_place() -> (
    None
):
    added = replace(MUL, name="aten.add.Tensor", module="extra", line=8)
    found = first_difference("block", [MUL, SIN], [MUL, added, SIN, added])
    assert found is not None
    assert found.cause is DifferenceCause.EXTRA_OPERATIONS
    assert (found.module, found.operation, found.line) == ("extra", added.name, 8)
    assert found.detail.startswith("Operation 2 of the replay")


COS = replace(SIN, name="aten.cos.default")
LONGER = replace(SIN, given=(replace(X, about="float32 (4,)"),))


@pytest.mark.parametrize("rest", [[COS, MUL, MUL], [COS, LONGER, MUL]])
def test_another_branch_is_no_extra_operation(rest: list[Operation]) -> None:
    found = first_difference("block", [MUL, SIN, MUL], [MUL, *rest])
    assert found is not None
    assert (found.cause, found.operation) == (DifferenceCause.CONTROL_FLOW, SIN.name)


def test_a_saved_result_that_was_edited_is_told_by_its_editor() -> None:
    edited = replace(X, content="edited")
    edit = Operation(name="aten.add_.Tensor", given=(X,), made=(edited,))
    found = first_difference("block", [MUL, edit], [replace(MUL, made=(edited,)), edit])
    assert found is not None
    assert found.cause is DifferenceCause.EXTERNAL_TENSOR
    assert found.detail.endswith("edited in place by aten.add_.Tensor")
    drawn = replace(MUL, is_random=True, has_generator=True)
    found = first_difference("block", [drawn, edit], [replace(drawn, made=(edited,)), edit])
    assert found is not None
    assert found.cause is DifferenceCause.EXTERNAL_TENSOR
    read = replace(edit, name="aten.add.Tensor")
    found = first_difference("block", [MUL, read], [replace(MUL, made=(edited,)), read])
    assert found is not None
    assert found.cause is DifferenceCause.NONDETERMINISTIC_KERNEL
