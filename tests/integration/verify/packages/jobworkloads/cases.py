"""Cases of the failure matrix, as small as they can be; the name says what is special."""

import contextvars
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from haversack.torch import Workload

WIDTH = 6
COUNTER = {"calls": 0}
GENERATOR = torch.Generator()
LEVEL = contextvars.ContextVar("LEVEL", default=1.0)


class Regions(nn.Module):
    """Linear layers, then one function of the module as a region."""

    def __init__(self, region: Callable[..., Any], **settings: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.settings: dict[str, Any] = {"use_reentrant": False, **settings}
        self.region = region

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.region, self, x, **self.settings)


def workload(region: Callable[..., Any], **settings: Any) -> Workload:
    model: Any = Regions(region, **settings)
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


class Mlp(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.2))
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def mlp(layers: int = 2) -> Workload:
    return Workload(Mlp(layers), (torch.randn(3, WIDTH, requires_grad=True),))


def numpy_mask() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        noise = torch.from_numpy(numpy.random.rand(WIDTH)).to(x.dtype)
        return model.linear(x).sin() * noise

    return workload(region)


def gradients_in_a_bucket() -> Workload:
    """The same, but that hooks leave no gradient: they move it elsewhere."""
    made = numpy_mask()
    model: Any = made.model
    bucket: dict[Any, torch.Tensor] = {}

    def move(parameter: Any) -> None:
        bucket[parameter], parameter.grad = parameter.grad, None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(move)
    return made


def own_generator() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        return model.linear(x).sin() * torch.rand(WIDTH, generator=GENERATOR)

    return workload(region)


def rrelu_last() -> Workload:
    return workload(lambda model, x: functional.rrelu(model.linear(x), training=True))


def global_counter_in_math() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        COUNTER["calls"] += 1
        return (model.linear(x) * COUNTER["calls"]).sin()

    return workload(region)


def counter_of_a_class() -> Workload:
    class Counting:
        calls = 0

    def region(model: Any, x: torch.Tensor) -> Any:
        Counting.calls += 1
        return model.linear(x).sin()

    return workload(region)


def ema_in_output() -> Workload:
    class Ema(Regions):
        def __init__(self) -> None:
            super().__init__(lambda model, x: model.smooth(x))
            self.register_buffer("mean", torch.zeros(WIDTH))

        def smooth(self, x: torch.Tensor) -> Any:
            h, mean = self.linear(x), self.get_buffer("mean")
            mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
            return (h * mean.clone()).sin()

    return Workload(Ema(), (torch.randn(3, WIDTH, requires_grad=True),))


def slow_average() -> Workload:
    """A buffer that moves by less than a tolerance, in the forward and again in the replay."""

    def region(model: Any, x: torch.Tensor) -> Any:
        h = model.linear(x)
        model.mean.lerp_(h.detach().mean(0), 1e-6)
        return h.sin()

    model: Any = Regions(region)
    model.register_buffer("mean", torch.ones(WIDTH))
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def stateful_hidden() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        model.hidden = (model.linear(x) + model.hidden).tanh()
        kept = model.hidden
        model.hidden = model.hidden.detach()
        return kept

    model: Any = Regions(region)
    model.hidden = torch.zeros(3, WIDTH)
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def iterator_argument() -> Workload:
    scales = iter([1.0, 2.0, 3.0])
    return workload(lambda model, x: (model.linear(x) * next(scales)).sin())


def exception_only_in_replay() -> Workload:
    seen = []

    def region(model: Any, x: torch.Tensor) -> Any:
        seen.append(1)
        if len(seen) > 1:
            raise ValueError("a second time")
        return model.linear(x).sin()

    return workload(region)


def keyword_changed_after() -> Workload:
    class Masked(Regions):
        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(self.region, x, use_reentrant=False, scale=self.scale)

    model: Any = Masked(lambda x, scale: model.linear(x + scale).sin())
    model.scale = torch.ones(WIDTH)
    given = (torch.randn(3, WIDTH, requires_grad=True),)
    return Workload(model, given, between_forward_and_backward=lambda: model.scale.mul_(2))


def attribute_of_the_last_forward() -> Workload:
    """Equal with one microbatch; the second forward overwrites what the first replay needs."""

    class Positions(Regions):
        def forward(self, x: torch.Tensor) -> Any:
            self.scale = torch.rand(WIDTH)
            return checkpoint(self.region, self, x, use_reentrant=False)

    model = Positions(lambda model, x: model.linear(x).sin() * model.scale)
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def loss_history() -> Workload:
    """Equal in one step; what the region left in a list weighs on the second step."""
    history: list[torch.Tensor] = []

    def region(model: Any, x: torch.Tensor) -> Any:
        h = model.linear(x)
        history.append(h.detach().mean())
        return h.sin()

    model = Regions(region)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(
        model,
        (torch.randn(3, WIDTH, requires_grad=True),),
        loss=lambda out: out.sum() * (1 + sum(history[:-1], torch.zeros(()))),
        optimizer=optimizer,
    )


def context_variable() -> Workload:
    """Equal where backward runs in the forward's thread; the variable is lost in another."""
    built = workload(lambda model, x: (model.linear(x) * LEVEL.get()).sin())

    class Leveled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = built.model

        def forward(self, x: torch.Tensor) -> Any:
            LEVEL.set(2.0)
            return self.inner(x)

    return Workload(Leveled(), built.args)


def nested() -> Workload:
    def inner(model: Any, x: torch.Tensor) -> Any:
        return functional.dropout(model.linear(x).sin(), 0.3)

    def region(model: Any, x: torch.Tensor) -> Any:
        return checkpoint(inner, model, x, use_reentrant=False).cos()

    return workload(region)


def reentrant() -> Workload:
    region = lambda model, x: functional.dropout(model.linear(x).sin(), 0.3)  # noqa: E731
    return workload(region, use_reentrant=True)


def selective() -> Workload:
    contexts: Any = create_selective_checkpoint_contexts
    policy = lambda ctx, op, *args, **kwargs: (  # noqa: E731
        CheckpointPolicy.MUST_SAVE
        if op == torch.ops.aten.addmm.default
        else CheckpointPolicy.PREFER_RECOMPUTE
    )
    return workload(
        lambda model, x: functional.dropout(model.linear(model.linear(x).sin()).sin(), 0.3),
        context_fn=lambda: contexts(policy),
    )


def shape_changes_in_replay() -> Workload:
    calls: list[int] = []

    def region(model: Any, x: torch.Tensor) -> Any:
        calls.append(1)
        return model.linear(x[: 4 - len(calls)]).sin()

    return workload(region)


def random_order_of_equal_shapes() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        functions = [torch.sin, torch.cos, torch.tanh, torch.exp]
        random.shuffle(functions)
        h = model.linear(x)
        for function in functions:
            h = function(h)
        return h

    return workload(region)


def nothing_to_replay() -> Workload:
    return workload(lambda model, x: x + 1)


def kept_on_the_context() -> Workload:
    """Equal, but no memory is saved: the function keeps its tensor itself."""

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            ctx.kept = x.exp()
            return ctx.kept.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * ctx.kept

    keep: Any = Keep
    return workload(lambda model, x: keep.apply(x))


def raises_in_forward() -> Workload:
    def region(model: Any, x: torch.Tensor) -> Any:
        raise ValueError("never works")

    return workload(region)


def raises_only_plain() -> Workload:
    """An output edited in place: a plain backward needs it as it was, a replay makes it anew."""

    class Edited(Regions):
        def forward(self, x: torch.Tensor) -> Any:
            y = checkpoint(self.region, self, x, use_reentrant=False)
            return y.mul_(2)

    model = Edited(lambda model, x: model.linear(x).exp())
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def function_with_a_weight() -> Workload:
    """No module at all: the weight is in a closure."""
    weight = torch.randn(WIDTH, requires_grad=True)

    def model(x: torch.Tensor) -> Any:
        return checkpoint(lambda x: (x * weight).sin(), x, use_reentrant=False)

    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def unused_parameter() -> Workload:
    model = Regions(lambda model, x: model.linear(x).sin())
    model.unused = nn.Parameter(torch.zeros(2))
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def reads_the_clock() -> Workload:
    import time

    def region(model: Any, x: torch.Tensor) -> Any:
        return model.linear(x).sin() * (time.perf_counter_ns() % 1000)

    return workload(region)
