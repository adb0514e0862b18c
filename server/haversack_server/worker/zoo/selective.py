"""Selective activation checkpointing: what is saved is found by an operation's name and count."""

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from haversack_server.worker.zoo.case import WIDTH, Regions, region

Tensor = torch.Tensor
aten: Any = torch.ops.aten
_contexts: Any = create_selective_checkpoint_contexts


def saving(*operations: Any, **settings: Any) -> Callable[[], Any]:
    """Make a context_fn that saves what these operations return."""

    def policy(ctx: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_saved = operation in operations
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    return functools.partial(_contexts, policy, **settings)


def saving_all() -> Any:
    """Be a context_fn that saves what every operation returns."""
    return _contexts(lambda ctx, operation, *_, **__: CheckpointPolicy.MUST_SAVE)


MATMULS = (aten.addmm.default, aten.mm.default)


@region(context_fn=saving(*MATMULS))
def selective_matmul(model: Any, x: Tensor) -> Any:
    """Matrix products saved, a dropout recomputed."""
    return functional.dropout(model.linear(model.linear(x).sin()).sin(), 0.5).sin()


@region(context_fn=saving())
def selective_nothing(model: Any, x: Tensor) -> Any:
    """A policy that saves nothing."""
    return functional.dropout(model.linear(model.linear(x).sin()).sin(), 0.5).sin()


@region(context_fn=saving(*MATMULS, aten.sin.default))
def selective_several(model: Any, x: Tensor) -> Any:
    """A policy that saves products and sines."""
    return model.linear(model.linear(x).sin()).sin().cos()


@region(context_fn=saving(aten.mm.default))
def selective_view(model: Any, x: Tensor) -> Any:
    """A saved product of which a view is used."""
    return (x @ model.linear.weight).view(-1).sin()


@region(context_fn=saving(*MATMULS), preserve_rng_state=False)
def selective_dropout_not_preserved(model: Any, x: Tensor) -> Any:
    """Products saved, a dropout drawn anew."""
    return functional.dropout(model.linear(model.linear(x).sin()).sin(), 0.5).sin()


@region(context_fn=saving(*MATMULS))
def selective_python_random(model: Any, x: Tensor) -> Any:
    """Products saved, a factor from Python's random."""
    return (model.linear(x) * random.random()).sin()


@region(context_fn=saving(*MATMULS), parts=lambda: {"calls": 0})
def selective_counter_in_math(model: Any, x: Tensor) -> Any:
    """Products saved, a count of calls as a factor."""
    model.calls += 1
    return (model.linear(x) * model.calls).sin()


@region(context_fn=saving(aten.mm.default), parts=lambda: {"other": nn.Linear(WIDTH, WIDTH)})
def selective_branch_swap(model: Any, x: Tensor) -> Any:
    """A branch that swaps two saved products, of equal number."""
    one, other = model.linear.weight, model.other.weight
    # Seed 0 draws 0.84, then 0.76.
    first, second = (one, other) if random.random() > 0.8 else (other, one)
    return (x @ first).sin() * (x.cos() @ second)


@region(context_fn=saving(aten.mm.default, allow_cache_entry_mutation=True))
def selective_mutation_allowed(model: Any, x: Tensor) -> Any:
    """A saved product edited in place, with the check for it off."""
    h = x @ model.linear.weight
    h.mul_(2)
    return h.sin()


@region(context_fn=saving(aten.mm.default, allow_cache_entry_mutation=True))
def selective_addition_allowed(model: Any, x: Tensor) -> Any:
    """A saved product added to in place, with the check for it off."""
    h = x @ model.linear.weight
    h.add_(1)
    return h.cos()


@region(context_fn=saving(aten.mm.default))
def selective_mutation(model: Any, x: Tensor) -> Any:
    """A saved product edited in place."""
    h = x @ model.linear.weight
    h.mul_(2)
    return h.sin()


@region(context_fn=saving(aten.bernoulli_.float))
def selective_random_saved(model: Any, x: Tensor) -> Any:
    """A policy that saves a draw in place."""
    h = model.linear(x).sin()
    return (h * torch.empty_like(h).bernoulli_(0.5)).sin()


@region(
    context_fn=saving(aten.native_batch_norm.default),
    parts=lambda: {"norm": nn.BatchNorm1d(WIDTH)},
)
def selective_batch_norm_saved(model: Any, x: Tensor) -> Any:
    """A policy that saves BatchNorm, which changes its buffers."""
    return model.norm(model.linear(x)).sin()


@region(context_fn=saving_all, parts=lambda: {"norm": nn.BatchNorm1d(WIDTH)})
def selective_batch_norm_count_saved(model: Any, x: Tensor) -> Any:
    """A policy that saves all, the count of batches too, which is moved in place."""
    return model.norm(model.linear(x)).sin()


@region(context_fn=saving_all)
def selective_everything(model: Any, x: Tensor) -> Any:
    """A policy that saves all, of operations that change nothing in place."""
    return model.linear(model.linear(x).sin()).sin().cos()


@region(context_fn=saving(aten.sin.default), parts=lambda: {"calls": 0})
def selective_more_operations(model: Any, x: Tensor) -> Any:
    """One saved operation more for every call."""
    model.calls += 1
    h = model.linear(x)
    for _ in range(model.calls):
        h = h.sin()
    return h.cos().tanh().exp()


class _Autocast(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.linear(x)
            return super().forward(x)


@region(around=_Autocast, context_fn=saving(aten._to_copy.default))
def selective_autocast_cache(model: Any, x: Tensor) -> Any:
    """A saved cast of a weight that autocast had in its cache in forward."""
    return model.linear(x).sin()


def _after_a_backward(output: Any) -> Any:
    output.sum().backward(retain_graph=True)
    return output.square().sum()


@region(context_fn=saving(*MATMULS), loss=_after_a_backward)
def selective_second_backward(model: Any, x: Tensor) -> Any:
    """A second backward, for which nothing is left of what was saved."""
    return model.linear(model.linear(x).sin()).sin()
