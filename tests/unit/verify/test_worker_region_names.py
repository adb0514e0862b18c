"""Names of regions, from what functions are and hold."""

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.torch.regions import as_given  # noqa: E402
from haversack_server.worker import blocks  # noqa: E402
from haversack_server.worker.region_functions import RegionFunctions  # noqa: E402
from haversack_server.worker.region_names import region_name  # noqa: E402


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(1, 1)])})


def test_a_region_is_named_by_the_module_that_it_runs() -> None:
    tree = Tree()
    names = blocks.module_names(tree)
    block: Any = tree.get_submodule("encoder.layers.0")

    def custom(module: nn.Module) -> Any:
        return lambda *args: module(*args)

    assert region_name(block, names) == "encoder.layers.0"
    assert region_name(block.forward, names) == "encoder.layers.0"
    assert region_name(block.__call__, names) == "encoder.layers.0"
    assert region_name(functools.partial(block, scale=2), names) == "encoder.layers.0"
    assert region_name(functools.partial(nn.Linear.forward, block), names) == "encoder.layers.0"
    assert region_name(custom(block), names) == "encoder.layers.0"
    assert region_name(as_given(block.forward, ([],), {})[0], names) == "encoder.layers.0"
    assert region_name(block.extra_repr, names) == "encoder.layers.0.extra_repr"
    assert region_name(tree, names) == "Tree"
    assert region_name(lambda x, layer=block: layer(x), names) == "encoder.layers.0"
    assert region_name(lambda x: block(tree(x)), names) == "encoder.layers.0"
    assert region_name(custom(tree), names) == "Tree.<lambda>"
    assert region_name(functools.partial(custom, module=block), names) == "encoder.layers.0"
    assert region_name(nn.functional.gelu, names) == "gelu"


def test_a_segment_is_named_by_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(*(nn.Identity() for _ in range(5)))
    names, segments = blocks.module_names(net), []

    def noted(function: Any, given: Any, **_: Any) -> Any:
        segments.append(region_name(function, names))
        return given

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", noted)
    torch.utils.checkpoint.checkpoint_sequential(net, 3, 1, use_reentrant=False)
    assert segments == ["0", "1"]
    torch.utils.checkpoint.checkpoint_sequential(net, 2, 1, use_reentrant=False)
    assert segments[2:] == ["0 to 1"]


class AnswersAnything:
    def __call__(self, given: Any) -> Any:
        return given

    def __getattr__(self, name: str) -> Any:
        return AnswersAnything()


class Raises(AnswersAnything):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def __self__(self) -> Any:
        raise RuntimeError("asked whose method it is")


@pytest.mark.parametrize("kind", [AnswersAnything, Raises])
def test_an_object_is_named_by_its_type_whatever_it_answers(kind: type[AnswersAnything]) -> None:
    tree, function = Tree(), kind()
    names = blocks.module_names(tree)
    assert region_name(function, names) == kind.__qualname__
    assert RegionFunctions(names).name(functools.partial(function)) == kind.__qualname__
