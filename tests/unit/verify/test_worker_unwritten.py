"""Which memory nothing has written: what the probes of saved values may not read."""

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker import unwritten  # noqa: E402
from haversack_server.worker.unwritten import Unwritten  # noqa: E402


def test_a_storage_is_unwritten_until_an_operation_writes_it() -> None:
    known = Unwritten()
    tensor, other = torch.empty(3), torch.ones(3)
    known.note(torch.ops.aten.empty.memory_format, ([3],), {}, tensor)
    assert known.has(tensor)
    assert known.has(tensor[1:])
    known.note(torch.ops.aten.add.Tensor, (other, other), {}, other + other)
    assert known.has(tensor)
    known.note(torch.ops.aten.copy_.default, (other, tensor), {}, other)
    assert known.has(tensor)
    known.note(torch.ops.aten.fill_.Scalar, (tensor, 1), {}, tensor)
    assert not known.has(tensor)


def test_what_is_made_like_a_tensor_leaves_that_tensor_written() -> None:
    known = Unwritten()
    given, made = torch.ones(3), torch.empty(3)
    known.note(torch.ops.aten.empty_like.default, (given,), {}, made)
    assert known.has(made)
    assert not known.has(given)


def test_a_storage_that_a_tensor_takes_over_is_written_only_if_it_was_seen_to_be() -> None:
    known = Unwritten()
    storage = torch.UntypedStorage(12)
    taken = torch.empty(0).set_(storage)
    adopts = torch.ops.aten.set_.source_Storage
    known.note(adopts, (taken, storage), {}, taken)
    assert known.has(taken)
    known.note(torch.ops.aten.copy_.default, (taken, torch.ones(3)), {}, taken)
    known.note(adopts, (again := torch.empty(0).set_(storage), storage), {}, again)
    assert not known.has(again)


@pytest.mark.parametrize(("name", "places"), unwritten._WORKSPACES.items())
def test_workspaces_are_results_of_operations_that_there_are(
    name: str, places: tuple[int, ...]
) -> None:
    packet, _, overload = name.removeprefix("aten.").partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload)
    assert str(operation) == name
    assert max(places) < len(operation._schema.returns)
