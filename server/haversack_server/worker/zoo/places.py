"""State of a region that lies where it is easily overlooked: each case counts in another place.

The count is a factor, so that the replay computes with another one.
"""

import contextvars
import functools
import os
import pathlib
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload
from haversack_server.worker.zoo.case import WIDTH, Regions, case, points, region, workload

Tensor = torch.Tensor
DEPTH = contextvars.ContextVar("DEPTH", default=0)
LOCAL = threading.local()
TALLY = {"static": 0, "property": 0}
ASKED = [0]


@region(parts=lambda: {"config": SimpleNamespace(calls=0)})
def state_in_a_namespace(model: Any, x: Tensor) -> Any:
    """A count of calls in a SimpleNamespace, as settings often are."""
    model.config.calls += 1
    return (model.linear(x) * model.config.calls).sin()


@region()
def state_in_the_environment(model: Any, x: Tensor) -> Any:
    """A count of calls in an environment variable."""
    os.environ["HAVERSACK_CALLS"] = str(int(os.environ.get("HAVERSACK_CALLS", "0")) + 1)
    return (model.linear(x) * int(os.environ["HAVERSACK_CALLS"])).sin()


@region()
def state_in_a_file(model: Any, x: Tensor) -> Any:
    """A count of calls in a file, which every run finds as the factory left it."""
    file = pathlib.Path("count.txt")
    count = 1 + (int(file.read_text()) if file.exists() else 0)
    file.write_text(str(count))
    return (model.linear(x) * count).sin()


@region()
def state_in_a_thread_local(model: Any, x: Tensor) -> Any:
    """A count of calls in a thread-local value."""
    LOCAL.calls = getattr(LOCAL, "calls", 0) + 1
    return (model.linear(x) * LOCAL.calls).sin()


@region()
def state_in_a_context_variable(model: Any, x: Tensor) -> Any:
    """A count of calls in a context variable, which the region sets itself."""
    DEPTH.set(DEPTH.get() + 1)
    return (model.linear(x) * DEPTH.get()).sin()


class _Counting(Regions):
    @staticmethod
    def next_scale() -> int:
        """Count in a global that only this method names."""
        TALLY["static"] += 1
        return TALLY["static"]

    @property
    def scale(self) -> int:
        """Count in a global that only this property names."""
        TALLY["property"] += 1
        return TALLY["property"]


@region(around=_Counting)
def state_behind_a_static_method(model: Any, x: Tensor) -> Any:
    """A count of calls in a global that a static method names."""
    return (model.linear(x) * model.next_scale()).sin()


@region(around=_Counting)
def state_behind_a_property(model: Any, x: Tensor) -> Any:
    """A count of calls in a global that a property names."""
    return (model.linear(x) * model.scale).sin()


@functools.lru_cache(maxsize=1)
def _asked(_: int) -> int:
    ASKED[0] += 1
    return ASKED[0]


@region(parts=lambda: {"calls": 0})
def state_behind_a_cache(model: Any, x: Tensor) -> Any:
    """A count of what a cached function was asked in vain."""
    model.calls += 1
    return (model.linear(x) * _asked(model.calls)).sin()


@region(parts=lambda: {"means": deque([torch.zeros(())] * 3, maxlen=3)})
def state_in_a_history_of_tensors(model: Any, x: Tensor) -> Any:
    """A history of means that was one tensor three times before the forward."""
    h = model.linear(x)
    model.means.append(h.detach().mean())
    return (h * torch.stack(list(model.means)).mean()).sin()


class _Doubling(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.sin.default else result


class _InDispatchMode(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        doubling: Any = _Doubling()  # type: ignore[no-untyped-call]
        with doubling:
            return super().forward(x)


@region(around=_InDispatchMode)
def state_dispatch_mode_of_the_forward(model: Any, x: Tensor) -> Any:
    """A dispatch mode that is open in forward only."""
    return torch.exp(torch.sin(model.linear(x)))


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class _Deterministic(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with _deterministic():
            return super().forward(x)


@region(around=_Deterministic)
def state_switch_of_the_forward(model: Any, x: Tensor) -> Any:
    """A factor by a switch of torch that is on in forward only."""
    return (model.linear(x) * (2 if torch.are_deterministic_algorithms_enabled() else 1)).sin()


class _SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@region(parts=lambda: {"seen": []})
def state_error_without_text(model: Any, x: Tensor) -> Any:
    """An exception in the replay only, which raises when it is asked for its text."""
    model.seen.append(1)
    if len(model.seen) > 1:
        raise _SpeechlessError
    return model.linear(x).sin()


class _Unanswering:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is not known yet")


@region(parts=lambda: {"_table": numpy.ones(3), "_client": _Unanswering()})
def state_unanswering_objects(model: Any, x: Tensor) -> Any:
    """Attributes that raise when they are compared or asked for anything."""
    return model.linear(x).sin()


@region(parts=lambda: {"norms": [nn.BatchNorm1d(WIDTH)]})
def buffers_of_a_module_in_a_list(model: Any, x: Tensor) -> Any:
    """BatchNorm in a plain list, which the model has no buffers of."""
    return model.norms[0](model.linear(x)).sin()


@case
def buffers_of_a_function() -> Workload:
    """A model that is a function, and closes over a module with buffers."""
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())
    return Workload(lambda x: checkpoint(block, x, use_reentrant=False), (points(),))


@case
def buffers_of_other_layouts() -> Workload:
    """Buffers that are quantised, sparse, nested, empty and of no size yet."""
    model = Regions(lambda model, x: model.linear(x).sin())
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("eight", torch.ones(4).to(torch.float8_e4m3fn))
    model.register_buffer("empty", torch.zeros(0))
    model.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    return workload(model)


class _Lazy(Regions):
    def __init__(self, region: Any, **settings: Any) -> None:
        super().__init__(region, **settings)
        self.linear = nn.LazyLinear(WIDTH)


@region(around=_Lazy)
def inputs_lazy_parameters(model: Any, x: Tensor) -> Any:
    """Parameters that the first forward makes."""
    return model.linear(x).sin()


@case
def hooks_nested_whole() -> Workload:
    """A region that is nothing but another one: its replay stops before the inner one begins."""

    def outer(model: Any, x: Tensor) -> Any:
        return checkpoint(lambda h: model.linear(h).sin(), x, use_reentrant=False)

    return workload(Regions(outer))
