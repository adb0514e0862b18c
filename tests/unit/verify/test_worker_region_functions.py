"""Functions of regions: each of a module has a name, and what each alone holds is looked at."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack_server.worker import blocks  # noqa: E402
from haversack_server.worker.region_functions import RegionFunctions  # noqa: E402
from haversack_server.worker.regions import Regions  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402

MODEL = nn.ModuleDict({"block": nn.Linear(1, 1)})
BLOCK: Any = MODEL["block"]


def kept(*functions: Callable[..., Any], in_replay: bool = False) -> RegionFunctions:
    found = RegionFunctions(blocks.module_names(MODEL))
    for each in functions:
        found.keep(found.name(each), each, in_replay=in_replay)
    return found


def names_of(*functions: Callable[..., Any]) -> list[str]:
    found = kept()
    return [found.name(each) for each in functions]


def logging_to(log: list[int]) -> Callable[..., Any]:
    return lambda x: BLOCK(x, log)


def counting(block: nn.Module, start: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    count = start

    def region(x: Any) -> Any:
        nonlocal count
        count += 1
        return block(x)

    return region, lambda: count


def test_functions_of_one_module_have_names_of_their_own() -> None:
    def attention(x: Any, block: nn.Module = BLOCK) -> Any:
        return block(x)

    def mlp(x: Any, block: nn.Module = BLOCK) -> Any:
        return block(x)

    others = [lambda x, b=BLOCK: b(x), lambda x, b=BLOCK: b(b(x))]
    named = names_of(attention, mlp, *others, mlp, attention)
    own = ["block.mlp", "block.<lambda>", "block.<lambda> 2"]
    assert named == ["block", *own, "block.mlp", "block"]


def test_a_module_has_one_name_however_it_is_called() -> None:
    calls = (BLOCK, BLOCK.forward, BLOCK.__call__, functools.partial(BLOCK, scale=2))
    assert {*names_of(*calls)} == {"block"}


def test_a_function_that_is_made_anew_keeps_its_name() -> None:
    assert names_of(counting(BLOCK, 0)[0], counting(BLOCK, 1)[0]) == ["block", "block"]


def test_what_each_function_alone_holds_is_looked_at() -> None:
    def make(log: list[int], block: nn.Module) -> Callable[..., Any]:
        return lambda x: block(x, log)

    shared: list[int] = []
    second: list[int] = []
    functions = kept(*(make(log, BLOCK) for log in (shared, second, shared)))
    before = snapshot(functions.reached()).values
    second.append(1)
    after = snapshot(functions.reached()).values
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert "region block (2).log" in changed
    assert not [name for name in after if name.startswith("region block (3)")]
    assert functions.reached(without=("block",)) == {}


def test_a_number_that_a_further_function_counts_is_looked_at() -> None:
    region, read = counting(BLOCK, 0)
    functions = kept(counting(BLOCK, 0)[0], region)
    region(torch.ones(1, 1))
    assert functions.reached()["region block (2).count"] == read() == 1


def test_what_replays_make_has_no_counterpart_and_is_left_out() -> None:
    functions = kept(logging_to([]))
    again = logging_to([])
    functions.keep(functions.name(again), again, in_replay=True)
    assert len(functions.reached()) == 1


def test_tensors_of_further_functions_are_not_kept_alive() -> None:
    def make(block: nn.Module, given: Any) -> Callable[..., Any]:
        return lambda: block(given[0] + given[1])

    tensor = torch.ones(1, 1)
    alive = weakref.ref(tensor)
    functions = kept(make(BLOCK, (torch.ones(1), torch.ones(1))), make(BLOCK, (tensor, tensor)))
    del tensor
    gc.collect()
    assert alive() is None
    assert [*functions.reached()] == ["region block"]


def test_a_run_names_and_keeps_every_function_of_a_module() -> None:
    def step(block: nn.Module, log: list[int]) -> tuple[Callable[..., Any], ...]:
        def mlp(x: Any) -> Any:
            log.append(1)
            return block(x)

        return lambda x: block(x), mlp

    regions = Regions(blocks.module_names(MODEL), direct=True)
    for each in step(BLOCK, []):
        regions.handle(torch.utils.checkpoint.checkpoint, each, torch.ones(1, 1))
    assert [call.region for call in regions.calls] == ["block", "block.mlp"]
    seen = snapshot(regions.functions.reached()).values
    assert seen["region block.mlp.log"] == "list of 1"
