"""Python state that a region reads or changes: its replay does not find what its forward had."""

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from haversack.torch import Workload
from haversack_server.worker.zoo.case import WIDTH, Regions, case, points, region

Tensor = torch.Tensor
CALLS = {"count": 0}
LEVEL = contextvars.ContextVar("LEVEL", default=1.0)
LOCAL = threading.local()


class Counted:
    """Holds a number on the class."""

    calls = 0


@region()
def state_global_counter_in_math(model: Any, x: Tensor) -> Any:
    """A global count of calls as a factor."""
    CALLS["count"] += 1
    return (model.linear(x) * CALLS["count"]).sin()


@region(parts=lambda: {"calls": 0})
def state_attribute_counter_in_math(model: Any, x: Tensor) -> Any:
    """A count of calls on the module as a factor."""
    model.calls += 1
    return (model.linear(x) * model.calls).sin()


@region()
def state_class_counter_in_math(model: Any, x: Tensor) -> Any:
    """A count of calls on a class as a factor."""
    Counted.calls += 1
    return (model.linear(x) * Counted.calls).sin()


@region(parts=lambda: {"scales": iter([1.0, 2.0, 3.0])})
def state_iterator(model: Any, x: Tensor) -> Any:
    """An iterator whose next number is a factor."""
    return (model.linear(x) * next(model.scales)).sin()


def _scales() -> Iterator[float]:
    scale = 1.0
    while True:
        yield scale
        scale += 1.0


@region(parts=lambda: {"scales": _scales()})
def state_generator(model: Any, x: Tensor) -> Any:
    """A generator whose next number is a factor."""
    return (model.linear(x) * next(model.scales)).sin()


@region(parts=lambda: {"scales": iter([1.0])})
def state_iterator_exhausted(model: Any, x: Tensor) -> Any:
    """An iterator with one number: the replay raises StopIteration."""
    return (model.linear(x) * next(model.scales)).sin()


@region(parts=lambda: {"scale": 1.0}, after=lambda model: setattr(model, "scale", 2.0))
def state_attribute_changed(model: Any, x: Tensor) -> Any:
    """A factor on the module that changes between forward and backward."""
    return (model.linear(x) * model.scale).sin()


@region(parts=lambda: {"config": {"power": 2}}, after=lambda m: m.config.update(power=3))
def state_setting_changed(model: Any, x: Tensor) -> Any:
    """A setting in a dictionary that changes between forward and backward."""
    return (model.linear(x) ** model.config["power"]).sin()


@region(parts=lambda: {"branch": True}, after=lambda model: setattr(model, "branch", False))
def state_branch_changed(model: Any, x: Tensor) -> Any:
    """A branch that a changed flag swaps for another of equal shapes."""
    h = model.linear(x)
    return (h.sin() if model.branch else h.cos()).exp()


@region(parts=lambda: {"branch": True}, after=lambda model: setattr(model, "branch", False))
def state_branch_of_the_last_operation(model: Any, x: Tensor) -> Any:
    """Branches that save the same input: a replay of the other one is as good."""
    h = model.linear(x)
    return h.sin() if model.branch else h.cos()


class _Positions(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        self.scale = torch.rand(WIDTH).to(x)
        return super().forward(x)


@region(around=_Positions)
def state_mask_of_the_microbatch(model: Any, x: Tensor) -> Any:
    """A mask on the module, which the next microbatch overwrites before the backward."""
    return model.linear(x).sin() * model.scale


@region(parts=lambda: {"hidden": torch.zeros(3, WIDTH)})
def state_hidden_of_a_recurrence(model: Any, x: Tensor) -> Any:
    """A hidden state on the module: the replay starts from the new one."""
    model.hidden = (model.linear(x) + model.hidden).tanh()
    kept = model.hidden
    model.hidden = model.hidden.detach()
    return kept


@contextlib.contextmanager
def _leveled(model: Any) -> Iterator[None]:
    model.level = 2.0
    try:
        yield
    finally:
        model.level = 1.0


class _InContext(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with _leveled(self):
            return super().forward(x)


@region(around=_InContext, parts=lambda: {"level": 1.0})
def state_context_of_the_forward(model: Any, x: Tensor) -> Any:
    """A context manager that is open in forward only; backward runs outside of it."""
    return (model.linear(x) * model.level).sin()


class _Doubling(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


class _InMode(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with _Doubling():
            return super().forward(x)


@region(around=_InMode)
def state_function_mode_of_the_forward(model: Any, x: Tensor) -> Any:
    """A function mode that is open in forward only."""
    return torch.exp(torch.sin(model.linear(x)))


class _Leveled(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        LEVEL.set(2.0)
        LOCAL.level = 2.0
        return super().forward(x)


@region(around=_Leveled)
def state_context_variable(model: Any, x: Tensor) -> Any:
    """A context variable, which is lost where backward has a thread of its own."""
    return (model.linear(x) * LEVEL.get()).sin()


@region(around=_Leveled)
def state_thread_local(model: Any, x: Tensor) -> Any:
    """A thread-local value, which is lost where backward has a thread of its own."""
    return (model.linear(x) * getattr(LOCAL, "level", 1.0)).sin()


@region(after=lambda model: model.drop.eval(), parts=lambda: {"drop": nn.Dropout(0.5)})
def state_evaluation_toggled(model: Any, x: Tensor) -> Any:
    """A dropout that is switched off between forward and backward."""
    return model.drop(model.linear(x).sin()).sin()


@region(parts=lambda: {"memo": {}})
def state_memo_with_gradient(model: Any, x: Tensor) -> Any:
    """A memo of a value with a gradient: the replay finds it and saves fewer tensors."""
    if "weight" not in model.memo:
        model.memo["weight"] = model.linear.weight.sin()
    return functional.linear(x, model.memo["weight"]).sin()


@region(parts=lambda: {"memo": {}})
def state_memo(model: Any, x: Tensor) -> Any:
    """A memo of a value without a gradient."""
    if "scale" not in model.memo:
        model.memo["scale"] = torch.arange(WIDTH, dtype=x.dtype, device=x.device)
    return (model.linear(x) * model.memo["scale"]).sin()


@region(parts=lambda: {"seen": []})
def state_error_in_the_replay(model: Any, x: Tensor) -> Any:
    """An exception of the user's own, in the replay only."""
    model.seen.append(1)
    if len(model.seen) > 1:
        raise ValueError("a second time")
    return model.linear(x).sin()


@region(parts=lambda: {"seen": []})
def state_exit_in_the_replay(model: Any, x: Tensor) -> Any:
    """SystemExit in the replay only."""
    model.seen.append(1)
    if len(model.seen) > 1:
        raise SystemExit("a second time")
    return model.linear(x).sin()


@region(parts=lambda: {"calls": 0})
def state_more_layers_in_the_replay(model: Any, x: Tensor) -> Any:
    """One more layer for every call: the replay saves other tensors."""
    model.calls += 1
    h = x
    for _ in range(model.calls):
        h = model.linear(h).sin()
    return h.sum(-1)[: model.calls].sin()


@region(parts=lambda: {"calls": 0})
def state_fewer_rows_in_the_replay(model: Any, x: Tensor) -> Any:
    """One row less for every call: shapes differ."""
    model.calls += 1
    return model.linear(x[: 4 - model.calls]).sin()


@region(parts=lambda: {"calls": 0}, determinism_check="none")
def state_fewer_rows_unchecked(model: Any, x: Tensor) -> Any:
    """One row less for every call, with determinism_check off."""
    model.calls += 1
    return model.linear(x[: 4 - model.calls]).sin()


@case
def state_loss_history() -> Workload:
    """A list of the region that weighs on the loss one step later."""
    history: list[Tensor] = []

    def region(model: Any, x: Tensor) -> Any:
        h = model.linear(x)
        history.append(h.detach().mean())
        return h.sin()

    model = Regions(region)
    return Workload(
        model,
        (points(),),
        loss=lambda out: out.sum() * (1 + sum(history[:-1], torch.zeros(()))),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )


@case
def state_momentum() -> Workload:
    """Two steps of an optimizer with momentum around a pure region."""
    model = Regions(lambda model, x: model.linear(x).sin())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return Workload(model, (points(),), optimizer=optimizer)


@region()
def state_swallowed_stop(model: Any, x: Tensor) -> Any:
    """A broad except that takes early stop for a failure and computes something else."""
    try:
        return model.linear(x).sin()
    except Exception:
        return model.linear(x).cos()
