"""Things that are under way or stand for others: how far they are, and what they lead to."""

import asyncio
import ctypes
import enum
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker.state import snapshot  # noqa: E402


async def waits() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


async def gives() -> AsyncIterator[int]:
    yield 1
    yield 2


def asked(generator: Any) -> None:
    with pytest.raises(StopIteration):
        generator.asend(None).send(None)


class One(enum.Enum):
    MEMBER = 1


def hooked(register: str) -> Any:
    weight: Any = torch.nn.Parameter(torch.ones(1))
    seen: list[int] = []
    getattr(weight, register)(lambda _: seen.append(1))
    return weight


def backward(weight: Any) -> None:
    weight.sum().backward()


@pytest.mark.parametrize(
    ("root", "change"),
    [
        (waits(), lambda it: it.send(None)),
        (gives(), asked),
        (One.MEMBER, lambda it: setattr(it, "count", 1)),
        (ctypes.pointer(ctypes.c_int()), lambda it: setattr(it.contents, "value", 1)),
        (iter(torch.utils.data.DataLoader([1, 2])), next),
        (hooked("register_hook"), backward),
        (hooked("register_post_accumulate_grad_hook"), backward),
    ],
    ids=["coroutine", "generator", "member", "pointer", "batches", "hook", "finished"],
)
def test_a_change_is_seen(root: Any, change: Callable[[Any], object]) -> None:
    before = snapshot({"root": root}).values
    change(root)
    assert snapshot({"root": root}).values != before


def test_a_coroutine_that_has_ended_has_no_variables() -> None:
    ended = waits()
    ended.close()
    assert snapshot({"root": ended}).values == {"root": "coroutine at its end"}
