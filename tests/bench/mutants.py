"""Models of the library with one bug put into one module: a workload for each bug and model.

The module is the first projection of a model's last checkpointed block, so that it runs in forward
and in replay, before the last operation that anything is saved for. Everything else is the
library's.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from haversack.torch import Workload
from haversack_server.verify.library import models
from haversack_server.worker.zoo import FACTORIES

Tensor = torch.Tensor
Change = Callable[[Any, Any], Any]
_KINDS = """
    bart bert bloom electra gemma gemma2 gpt-neox gpt2 llama mamba
    mistral mixtral olmo2 opt phi qwen2 qwen3 roberta t5 vit
"""
MODELS = tuple(f"library-{kind}" for kind in _KINDS.split())
assert set(MODELS) <= models().keys()


def build(model: str, bug: str) -> Workload:
    """Build a model of the library with a bug in its target."""
    workload = FACTORIES[model]()
    callback = BUGS[bug](_target(workload.model)[1], workload.model)
    return Workload(workload.model, workload.args, between_forward_and_backward=callback)


@dataclass(frozen=True, slots=True)
class Target:
    """Names the module that a bug is put into, and the region that it lies in."""

    region: str
    module: str


def target(model: str) -> Target:
    """Name where a bug of this model is put."""
    return _target(FACTORIES[model]().model)[0]


def _target(model: Any) -> tuple[Target, nn.Module]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    blocks = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, GradientCheckpointingLayer)
    }
    path, block = list(blocks.items())[-1]
    for name, module in block.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.dim() == 2:
            return Target(path, f"{path}.{name}"), module
    raise ValueError(f"{path} has no projection")


def _changed(module: Any, change: Change) -> None:
    """Let a function change what the module returns."""
    own = module.forward

    def forward(x: Tensor) -> Any:
        return change(module, own(x))

    module.forward = forward


def _python_random(module: Any, _: Any) -> None:
    _changed(module, lambda m, y: y * (1 + random.random()))


def _running_mean(module: Any, _: Any) -> None:
    module.register_buffer("running", torch.zeros(()))

    def change(m: Any, y: Any) -> Any:
        m.running.lerp_(y.detach().mean(), 0.1)
        return y

    _changed(module, change)


def _counter(module: Any, _: Any) -> None:
    module.calls = 0

    def change(m: Any, y: Any) -> Any:
        m.calls += 1
        return y * m.calls

    _changed(module, change)


def _keyword_edited(module: Any, _: Any) -> Callable[[], object]:
    shift = torch.full((), 0.1)

    def shifted(y: Tensor, *, by: Tensor) -> Tensor:
        return y + y.sin() * by.expand_as(y).clone()

    _changed(module, lambda m, y: shifted(y, by=shift))
    return lambda: shift.mul_(2)


def _cache(module: Any, _: Any) -> None:
    module.cache, module.cursor = torch.zeros(8), 0

    def change(m: Any, y: Any) -> Any:
        m.cache[m.cursor] = y.detach().mean() + 1
        m.cursor += 1
        return y * m.cache[: m.cursor].sum().clone()

    _changed(module, change)


def _dtype(module: Any, _: Any) -> None:
    module.is_cast = False

    def change(m: Any, y: Any) -> Any:
        if m.is_cast:
            return y
        m.is_cast = True
        return y.to(torch.float16).to(y.dtype)

    _changed(module, change)


def _generator(module: Any, _: Any) -> None:
    module.noise = torch.Generator().manual_seed(1)
    _changed(module, lambda m, y: y * torch.rand(y.shape, generator=m.noise))


def _hook(module: Any, _: Any) -> None:
    seen: list[int] = []

    def scale(_: Any, given: tuple[Tensor]) -> tuple[Tensor]:
        seen.append(len(seen))
        return (given[0] * len(seen),)

    module.register_forward_pre_hook(scale)


def _stale_mask(module: Any, model: Any) -> None:
    masks = iter([0.5, 2.0, 4.0])

    def set_mask(*_: Any) -> None:
        module.mask = torch.full((), next(masks))

    model.register_forward_pre_hook(set_mask)
    _changed(module, lambda m, y: y * m.mask)


def _hidden_state(module: Any, _: Any) -> None:
    module.hidden = torch.zeros(())

    def change(m: Any, y: Any) -> Any:
        y = y + m.hidden
        m.hidden = y.detach().mean() + 1
        return y.sin()

    _changed(module, change)


BUGS: Mapping[str, Callable[[Any, Any], Callable[[], object] | None]] = {
    "python-random": _python_random,
    "running-mean": _running_mean,
    "counter": _counter,
    "keyword-edited": _keyword_edited,
    "cache": _cache,
    "dtype": _dtype,
    "generator": _generator,
    "hook": _hook,
    "stale-mask": _stale_mask,
    "hidden-state": _hidden_state,
}
