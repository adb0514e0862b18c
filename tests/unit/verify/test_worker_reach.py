"""Places that a count may lie in: each is looked into, and an object that resists ends nothing."""

import argparse
import array
import collections
import contextvars
import ctypes
import decimal
import functools
import io
import itertools
import logging
import queue
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")
numpy = pytest.importorskip("numpy")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from haversack_server.worker.reach import tensor_digest  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402

TALLY = [0]
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)
LOCAL = threading.local()


class Held:
    """Counts in places that belong to its class."""

    def __init__(self) -> None:
        self.count = 0

    @staticmethod
    def static() -> None:
        TALLY[0] += 1

    @property
    def level(self) -> int:
        TALLY[0] += 1
        return TALLY[0]


class Log(list[int]):
    """A list with a number of its own."""

    level = 0


class Private:
    """Counts in a slot that its class alone names."""

    __slots__ = ("__count",)

    def __init__(self) -> None:
        self.__count = 0

    def move_on(self) -> None:
        self.__count += 1


class Pair(ctypes.Structure):
    _fields_ = [("one", ctypes.c_int), ("both", ctypes.c_int * 2)]


class Counting(type):
    made = 0


class Made(metaclass=Counting):
    """Is counted by the class of its class."""


def delegates() -> Any:
    yield from (1, 2)


def scheduler() -> Any:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    made = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    return made


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@functools.cache
def asked(key: int) -> int:
    return key + TALLY[0]


def imports_inside() -> int:
    from tests.unit.verify import outcomes

    return len(outcomes.COUNTED)


def asks_by_text() -> Any:
    return globals()["TALLY"]


def logger() -> logging.Logger:
    made = logging.Logger("theirs")
    made.addHandler(Keeping())
    return made


def grows(thing: Any) -> None:
    thing.append(1)


Place = tuple[Any, Callable[[Any], object]]
PLACES: dict[str, Place] = {
    ".n": (types.SimpleNamespace(n=0), lambda it: setattr(it, "n", 1)),
    ".m": (argparse.Namespace(m=0), lambda it: setattr(it, "m", 1)),
    ".data": (collections.UserList[int](), grows),
    ".queue": (queue.Queue[int](), lambda it: it.put(1)),
    "[]": (bytearray(1), lambda it: it.__setitem__(0, 1)),
    ".get()": (VARIABLE, lambda it: it.set(it.get() + 1)),
    ".count": (threading.local(), lambda it: setattr(it, "count", 1)),
    ".handlers": (logger(), lambda it: it.warning("one")),
    ".__wrapped__": (asked, lambda _: TALLY.__setitem__(0, TALLY[0] + 1)),
    ".__self__": ([].append, lambda it: it(1)),
    ".level": (Log(), lambda it: setattr(it, "level", 1)),
    ".referent": (weakref.ref(held := Held()), lambda it: setattr(it(), "count", it().count + 1)),
    ".fget": (Held.__dict__["level"], lambda _: held.level),
    ".__func__": (Held.__dict__["static"], lambda _: Held.static()),
    ".calls": (torch.ones(1), lambda it: setattr(it, "calls", 1)),
    "._calls": (nn.Parameter(torch.ones(1)), lambda it: setattr(it, "_calls", 1)),
    "._Private__count": (Private(), lambda it: it.move_on()),
    ".one": (Pair(), lambda it: setattr(it, "one", 1)),
    ".both[]": (Pair(), lambda it: it.both.__setitem__(0, 1)),
    ".value": (ctypes.c_double(), lambda it: setattr(it, "value", 1.0)),
    ".made": (Made, lambda it: setattr(type(it), "made", it.made + 1)),
    ".gi_yieldfrom": (delegates(), next),
    ".getvalue()": (io.StringIO("a"), lambda it: it.write("b") and it.seek(0)),
    ".param_groups": (scheduler().optimizer, lambda it: it.param_groups[0].update(lr=0.5)),
    "._step_count": (scheduler(), lambda it: it.step()),
    "._value": (threading.Semaphore(2), lambda it: it.acquire()),
    ".num_generated": (torch.quasirandom.SobolEngine(1), lambda it: it.draw()),
    "a member": ({Held()}, lambda it: setattr(next(iter(it)), "count", 1)),
    "weak members": (weakref.WeakSet[Held](), lambda it: it.add(held)),
    "how many": (queue.SimpleQueue[int](), lambda it: it.put(1)),
    "bytes": (memoryview(bytearray(1)), lambda it: it.__setitem__(0, 1)),
    ".flat": (numpy.array([[1], None], dtype=object), lambda it: it[0].append(1)),
}


def differing(root: Any, change: Callable[[Any], object]) -> set[str]:
    before = snapshot({"root": root}).values
    change(root)
    after = snapshot({"root": root}).values
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize("place", PLACES)
def test_a_change_is_seen_wherever_it_lies(place: str) -> None:
    root, change = PLACES[place]
    assert differing(root, change)


@pytest.mark.parametrize(
    "root",
    [
        itertools.cycle([1, 2]),
        enumerate("ab"),
        itertools.chain([1], [2]),
        zip([1], [2], strict=True),
    ],
)
def test_iterators_of_the_library_are_seen_by_their_place(root: Any) -> None:
    assert differing(root, next)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (numpy.int64(1), numpy.int64(2)),
        (decimal.Decimal(1), decimal.Decimal(2)),
        (array.array("d", [1.0]), array.array("d", [2.0])),
        ({(1, "a"): 1, (2, "a"): 2}, {(1, "a"): 1, (3, "a"): 2}),
    ],
)
def test_values_of_libraries_are_spelled(one: Any, other: Any) -> None:
    assert snapshot({"root": one}).values != snapshot({"root": other}).values


def test_a_vocabulary_is_one_thing_and_its_changes_are_seen() -> None:
    words = {f"word {number}": number for number in range(2000)}
    merges = [(word, word) for word in words]
    root = types.SimpleNamespace(words=words, merges=merges)
    assert len(snapshot({"root": root}).values) == 3
    assert differing(root, lambda it: it.words.update({"word 7": 8})) == {"root.words"}
    assert differing(root, lambda it: it.merges.append(("a", "b"))) == {"root.merges"}
    assert not differing(root, lambda it: it.words.update({"word 0": it.words.pop("word 0")}))


def test_globals_are_found_that_a_function_imports_or_asks_for_by_text() -> None:
    from tests.unit.verify import outcomes

    assert differing(imports_inside, lambda _: outcomes.COUNTED.append(1)) == {
        "tests.unit.verify.outcomes.COUNTED",
        f"tests.unit.verify.outcomes.COUNTED[{len(outcomes.COUNTED) - 1}]",
    }
    changed = differing(asks_by_text, lambda _: TALLY.__setitem__(0, TALLY[0] + 1))
    assert changed == {f"{__name__}.TALLY[0]"}


def test_a_cache_is_its_size_and_not_how_often_it_was_asked() -> None:
    asked(7)
    assert not differing(asked, lambda it: it(7))
    assert differing(asked, lambda it: it(8)) == {"root"}


class Unanswering:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Incomparable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("incomparable")


# A class that says that it is a dictionary, and is none.
Liar: Any = type("Liar", (), {"__class__": property(lambda _: dict)})


def test_objects_that_resist_are_spelled_by_their_type() -> None:
    module = torch.nn.Linear(2, 2)
    module._table, module._moody, module._empty = numpy.ones(2), Incomparable(), {}
    found = snapshot({"root": [module, Unanswering(), Liar()]}).values
    assert found["root[2]"] == "Liar that cannot be looked at: TypeError"
    assert "root[0]._table" in found
    assert "root[0]._empty" not in found


def test_a_weight_that_a_hook_computes_anew_is_no_state_of_its_own() -> None:
    layer: Any = nn.utils.spectral_norm(nn.Linear(2, 2))
    assert not differing(layer, lambda it: setattr(it, "weight", it.weight * 2))
    assert differing(layer, lambda it: it.weight_orig.data.mul_(2)) == {"root.weight_orig"}


def test_what_is_only_named_as_if_it_were_computed_is_state() -> None:
    pruned: Any = prune.identity
    layer = pruned(nn.Linear(2, 2), "weight")
    layer.scale_orig, layer.scale = nn.Parameter(torch.ones(2)), []
    assert not differing(layer, lambda it: setattr(it, "weight", it.weight * 2))
    assert differing(layer, lambda it: it.scale.append(1)) == {"root.scale", "root.scale[0]"}


def test_where_text_goes_is_no_state() -> None:
    assert snapshot({"root": [sys.__stdout__, sys.__stderr__]}).values == {"root": "list of 2"}


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested:UserWarning")
def test_tensors_of_every_layout_have_a_digest() -> None:
    parts = [torch.ones(2), torch.ones(3)]
    odd = [
        torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8),
        torch.nested.nested_tensor(parts, layout=torch.jagged),
        torch.nested.nested_tensor(parts),
        torch.eye(3).to_sparse(),
        torch.zeros(0),
        torch.ones(1).expand(4),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2).to(torch.float8_e4m3fn),
    ]
    assert all(tensor_digest(each)[1] for each in odd)
    assert tensor_digest(torch.nn.LazyLinear(2).weight) == ("tensor torch.float32 no shape yet", "")
