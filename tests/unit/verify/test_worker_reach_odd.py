"""Objects that answer less than others, and forwards that were put on a module."""

import threading
import weakref
from collections import UserDict
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.torch import Workload  # noqa: E402
from haversack_server.worker.leaves import find_leaves  # noqa: E402
from haversack_server.worker.reach import look  # noqa: E402
from haversack_server.worker.regions import wrap  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402


def test_what_a_weak_proxy_was_of_may_be_gone() -> None:
    gone = weakref.proxy(nn.Linear(1, 1))
    model: Any = nn.Linear(1, 1)
    model.other = [gone]
    assert "of nothing" in snapshot({"model": model}).values["model.other[0]"]
    assert list(find_leaves(Workload(model)).parameters) == ["weight", "bias"]


def test_an_integer_of_any_length_is_spelled() -> None:
    one, other = (snapshot({"root": [1 << bits]}).values for bits in (20_000, 20_001))
    assert one.keys() == other.keys()
    assert one != other


def test_what_answers_little_is_looked_into_as_far_as_it_does() -> None:
    class Odd(UserDict[str, int]):
        """A mapping that changes where it is read, as one that keeps what was used last does."""

        def __getitem__(self, key: str) -> int:
            raise RuntimeError("changed")

    odd = Odd()
    odd.data = {"count": 1}
    said, children = look(odd)
    assert "cannot be looked at" in said
    assert dict(children) == {".data": {"count": 1}}


def patched(calls: list[int]) -> nn.Module:
    """Put a closure in the place of a module's forward, as adapters and attention kernels are."""
    module: Any = nn.Linear(1, 1)
    real = module.forward

    def forward(x: Any) -> Any:
        calls.append(1)
        return real(x)

    module.forward = forward
    return nn.Sequential(module)


@pytest.mark.parametrize("is_region", [False, True])
def test_what_a_forward_of_a_module_holds_is_found_where_it_is_a_region_too(
    is_region: bool,
) -> None:
    calls: list[int] = []
    model: Any = patched(calls)
    if is_region:
        wrap(model.children(), use_reentrant=False)
    assert snapshot({"model": model}).values["model.0.forward.calls"] == "list of 0"


def test_a_region_alone_is_no_forward_of_a_module() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    before = snapshot({"model": model}).values
    wrap(model.children(), use_reentrant=False)
    assert snapshot({"model": model}).values == before


def test_numbers_that_the_system_gives_a_thread_are_no_state() -> None:
    class Counting(threading.Thread):
        steps = 0

    thread = Counting()
    assert ".steps" not in dict(look(thread)[1])
    thread.steps = 1
    assert [name for name, _ in look(thread)[1] if name[0] == "."] == [".steps"]
