"""What a snapshot of Python state sees, and under which name."""

import collections
import functools
import io
import random
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")
numpy = pytest.importorskip("numpy")

from haversack_server.worker.state import snapshot  # noqa: E402

CALLS = {"n": 0}
MODULE = types.ModuleType("their_settings")
MODULE.__dict__["level"] = 1


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counting:
    total = 0

    def __init__(self) -> None:
        self.own = 0


def closure() -> tuple[Callable[[], None], list[int]]:
    log: list[int] = []
    return lambda: log.append(1), log


def differing(root: Any, change: Callable[[], object]) -> set[str]:
    before = snapshot({"root": root}).values
    change()
    after = snapshot({"root": root}).values
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_containers_are_seen_by_their_length_and_content() -> None:
    root = {"list": [1], "dict": {"a": 1}, "set": {1}, "deque": collections.deque([1])}

    def change() -> None:
        root["list"].append(2)  # type: ignore[attr-defined]
        root["dict"]["a"] = 2  # type: ignore[index]
        root["set"].add(2)  # type: ignore[attr-defined]
        root["deque"].append(1)  # type: ignore[attr-defined]

    assert differing(root, change) == {
        "root['list']",
        "root['list'][1]",
        "root['dict']['a']",
        "root['set']",
        "root['deque']",
        "root['deque'][1]",
    }


def test_a_closure_is_seen_by_the_name_of_its_variable() -> None:
    function, log = closure()
    assert differing(function, lambda: log.append(1)) == {"root.log", "root.log[0]"}


def test_partials_methods_and_defaults_are_looked_through() -> None:
    log: list[int] = []

    def function(kept: list[int] = log) -> None: ...

    found = differing(functools.partial(function, [1]), lambda: log.append(1))
    assert found == {"root.func.__defaults__[0][0]", "root.func.__defaults__[0][0][0]"}
    counting = Counting()
    method = types.MethodType(function, counting)
    assert differing(method, lambda: setattr(counting, "own", 1)) == {"root.__self__.own"}


def reads_globals() -> int:
    level: int = MODULE.level
    return CALLS["n"] + level


def test_globals_that_a_function_names_are_seen_under_their_own_path() -> None:
    assert differing(reads_globals, lambda: CALLS.update(n=CALLS["n"] + 1)) == {
        f"{__name__}.CALLS['n']"
    }
    change = functools.partial(setattr, MODULE, "level", MODULE.level + 1)
    assert differing(reads_globals, change) == {"their_settings.level"}


def test_attributes_of_classes_and_slots_are_seen() -> None:
    slotted, counting = Slotted(), Counting()
    assert differing(slotted, lambda: setattr(slotted, "n", 1)) == {"root.n"}
    change = functools.partial(setattr, Counting, "total", Counting.total + 1)
    assert differing(counting, change) == {f"{__name__}.Counting.total"}


def test_a_module_is_seen_without_its_buffers() -> None:
    module = torch.nn.BatchNorm1d(2)
    module.seen = 0
    change = functools.partial(vars(module).update, seen=1)
    found = differing(module, lambda: (module.running_mean.add_(1), change()))
    assert found == {"root.seen"}
    assert differing(module, lambda: module.weight.data.add_(1)) == {"root.weight"}
    assert differing(module, lambda: module.eval()) == {"root.training"}


def test_tensors_and_arrays_are_seen_by_their_content() -> None:
    root = [torch.zeros(3), numpy.zeros(3), torch.zeros(2).to_sparse(), torch.zeros(1).bfloat16()]
    assert differing(root, lambda: (root[0].add_(1), root[1].__iadd__(1))) == {"root[0]", "root[1]"}


def test_iterators_generators_and_streams_are_seen_by_their_place() -> None:
    def count() -> Any:
        number = 0
        while number < 2:
            number += 1
            yield number

    roots: tuple[Any, ...] = (iter([1, 2]), count(), io.StringIO("ab"), iter(range(3)))
    for root in roots:
        step = functools.partial(root.read, 1) if hasattr(root, "read") else root.__next__
        assert differing(root, step), root


def test_a_long_list_of_numbers_is_one_thing() -> None:
    root = list(range(1000))
    assert list(snapshot({"root": root}).values) == ["root"]
    assert differing(root, lambda: root.__setitem__(999, 0)) == {"root"}


@pytest.mark.parametrize(
    ("generator", "draw"),
    [
        (torch.Generator(), lambda it: torch.rand(1, generator=it)),
        (random.Random(1), lambda it: it.random()),
        (numpy.random.default_rng(1), lambda it: it.random()),
        (numpy.random.RandomState(1), lambda it: it.random()),
        (numpy.random.PCG64(1), lambda it: it.random_raw()),
    ],
)
def test_generators_are_apart_from_other_state(generator: Any, draw: Callable[[Any], Any]) -> None:
    before = snapshot({"root": [generator]})
    draw(generator)
    after = snapshot({"root": [generator]})
    assert before.values == after.values
    assert before.generators.keys() == {"root[0]"}
    assert before.generators != after.generators


def test_a_generator_without_a_state_is_nothing() -> None:
    assert snapshot({"root": random.SystemRandom()}).generators == {}


def test_a_thing_is_named_once_under_the_first_root_that_reaches_it() -> None:
    shared = [1]
    found = snapshot({"model": {"x": shared}}, {"region": shared, "more": [2]})
    assert list(found.values) == ["model", "model['x']", "model['x'][0]", "more", "more[0]"]


def test_loops_end_and_the_cap_is_told() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert not snapshot({"root": loop}).truncated
    assert snapshot({"root": list(map(str, range(50)))}, most_things=10).truncated


def test_our_own_probes_are_not_looked_into() -> None:
    from haversack_server.worker.regions import Regions

    probe = Regions({}, direct=True)
    before = snapshot({"root": [probe]}).values
    probe.calls.append(object())  # type: ignore[arg-type]
    assert snapshot({"root": [probe]}).values == before
