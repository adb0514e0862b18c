"""Hooks, second derivatives and second backwards around a region."""

import random
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from haversack.torch import Workload
from haversack_server.worker.zoo.case import WIDTH, Regions, case, region, workload

Tensor = torch.Tensor


def _sine(model: Any, x: Tensor) -> Any:
    return model.linear(x).sin()


def _hooked(register: Any) -> Workload:
    model: Any = Regions(_sine)
    model.calls, model.kept = 0, []
    register(model)
    return workload(model)


@case
def hooks_forward_counter() -> Workload:
    """A forward hook inside a region that counts."""

    def count(model: Any) -> None:
        model.calls += 1

    return _hooked(lambda model: model.linear.register_forward_hook(lambda *_: count(model)))


@case
def hooks_forward_capture() -> Workload:
    """A forward hook inside a region that keeps what comes out."""
    return _hooked(
        lambda model: model.linear.register_forward_hook(
            lambda _, __, out: model.kept.append(out.detach()),
        )
    )


@case
def hooks_stateful_input() -> Workload:
    """A hook before the forward that scales its input by the number of calls."""

    def scaled(model: Any, x: Tensor) -> Any:
        model.calls += 1
        return x * model.calls

    return _hooked(
        lambda model: model.linear.register_forward_pre_hook(lambda _, args: scaled(model, *args))
    )


@case
def hooks_full_backward() -> Workload:
    """A full backward hook that halves gradients."""
    return _hooked(
        lambda model: model.linear.register_full_backward_hook(
            lambda _, given, __: tuple(each / 2 for each in given)
        )
    )


@case
def hooks_parameter() -> Workload:
    """A hook that doubles the gradient of a parameter and counts its calls."""

    def doubled(model: Any, gradient: Tensor) -> Any:
        model.calls += 1
        return gradient * 2

    return _hooked(lambda m: m.linear.weight.register_hook(lambda gradient: doubled(m, gradient)))


@region()
def hooks_tensor(model: Any, x: Tensor) -> Any:
    """A hook on a tensor inside a region."""
    h = model.linear(x)
    h.register_hook(lambda gradient: gradient * 2)
    return h.sin()


class _Tied(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(super().forward(x))


@region(around=_Tied)
def hooks_tied_weights(model: Any, x: Tensor) -> Any:
    """A weight that is used inside and outside of a region."""
    return model.linear(x).sin()


@region()
def hooks_accumulated(model: Any, x: Tensor) -> Any:
    """Gradients of two microbatches, accumulated."""
    return model.linear(x).sin()


def _of_gradient(output: Any) -> Any:
    (gradient,) = torch.autograd.grad(output.sum(), _leaf_of(output), create_graph=True)
    return gradient.square().sum()


def _leaf_of(output: Any) -> Any:
    leaf: Any = output.haversack_leaf
    return leaf


class _Leafed(Regions):
    """Keeps the input on the output, so that a loss can take the gradient of it."""

    def forward(self, x: torch.Tensor) -> Any:
        output = super().forward(x)
        output.haversack_leaf = x
        return output


@region(around=_Leafed, loss=_of_gradient)
def hooks_double_backward(model: Any, x: Tensor) -> Any:
    """A loss that is a function of the input's gradient."""
    return model.linear(x).sin()


@region(around=_Leafed, loss=_of_gradient)
def hooks_double_backward_python_random(model: Any, x: Tensor) -> Any:
    """The same with a factor from Python's random."""
    return (model.linear(x) * random.random()).sin()


def _after_a_backward(output: Any) -> Any:
    output.sum().backward(retain_graph=True)
    return output.square().sum()


@region(loss=_after_a_backward)
def hooks_retained_graph(model: Any, x: Tensor) -> Any:
    """Two backwards over one graph: two replays."""
    return model.linear(x).sin()


@region()
def hooks_gradient_inside(model: Any, x: Tensor) -> Any:
    """A gradient that is taken inside a region."""
    inner = model.linear(x).sin()
    (gradient,) = torch.autograd.grad(inner.sum(), inner, create_graph=True)
    return (inner * gradient).cos()


class _Quantised(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with saved_tensors_hooks(lambda t: (t * 8).round() / 8, lambda t: t):
            return super().forward(x)


@region(around=_Quantised)
def hooks_quantised_outside(model: Any, x: Tensor) -> Any:
    """Hooks around a region that quantise what is saved: they meet other tensors than without."""
    return model.linear(model.linear(x).sin()).sin()


class _OnHost(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with save_on_cpu():
            return super().forward(x)


@region(around=_OnHost)
def hooks_saved_on_the_host(model: Any, x: Tensor) -> Any:
    """save_on_cpu around a region."""
    return model.linear(x).sin()


@region()
def hooks_saved_inside(model: Any, x: Tensor) -> Any:
    """Hooks for saved tensors inside a region."""
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return model.linear(model.linear(x).sin()).sin()


@region()
def hooks_nested(model: Any, x: Tensor) -> Any:
    """A region inside a region."""
    return checkpoint(_sine, model, x, use_reentrant=False).cos()


class Sequential(nn.Module):
    """Runs a sequence of layers in segments."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> Any:
        """Run ``x`` of shape (BATCH, WIDTH) through two segments."""
        run: Any = checkpoint_sequential
        return run(self.layers, 2, x, use_reentrant=False).sin()


@case
def hooks_sequential() -> Workload:
    """The segments of checkpoint_sequential."""
    return workload(Sequential())


class Keep(torch.autograd.Function):
    """The exponential, which keeps its result on the context itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        """Keep the result, and return a copy."""
        ctx.kept = x.exp()
        return ctx.kept.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of ``x``."""
        return gradients[0] * ctx.kept


class Twice(torch.autograd.Function):
    """The exponential, which reads what it saved twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        """Save the result."""
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of ``x``."""
        (first,), (second,) = ctx.saved_tensors, ctx.saved_tensors
        return gradients[0] * (first + second) / 2


@region()
def hooks_kept_on_the_context(model: Any, x: Tensor) -> Any:
    """A function of one's own that keeps its tensor itself: equal, and saves nothing."""
    keep: Any = Keep
    return keep.apply(x)


@region()
def hooks_saved_tensors_twice(model: Any, x: Tensor) -> Any:
    """A function of one's own that reads its saved tensors twice."""
    twice: Any = Twice
    return twice.apply(model.linear(x))
