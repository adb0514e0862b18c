"""Effects of a region that no value depends on: a replay has them once more.

Early stop ends a replay at the last tensor that is needed, so what stands behind it happens once.
"""

import functools
import logging
import pathlib
import tempfile
import time
from typing import Any

import torch

from haversack_server.worker.zoo.case import WIDTH, Regions, region

Tensor = torch.Tensor
LOG = logging.getLogger("haversack-zoo")


class Counted:
    """Holds a number on the class."""

    calls = 0


@region(parts=lambda: {"calls": 0})
def side_effects_counter(model: Any, x: Tensor) -> Any:
    """A count of calls that nothing uses."""
    model.calls += 1
    return model.linear(x).sin()


@region()
def side_effects_class_counter(model: Any, x: Tensor) -> Any:
    """A count of calls on a class that nothing uses."""
    Counted.calls += 1
    return model.linear(x).sin()


@region(parts=lambda: {"log": []})
def side_effects_list(model: Any, x: Tensor) -> Any:
    """A list that every call appends to."""
    model.log.append(len(model.log))
    return model.linear(x).sin()


@region(parts=lambda: {"log": {}})
def side_effects_dictionary(model: Any, x: Tensor) -> Any:
    """A dictionary that every call adds a key to."""
    model.log[len(model.log)] = "called"
    return model.linear(x).sin()


@region(parts=lambda: {"losses": []})
def side_effects_auxiliary_losses(model: Any, x: Tensor) -> Any:
    """A list of auxiliary losses that every call appends to."""
    h = model.linear(x)
    model.losses.append(h.detach().square().mean())
    return h.sin()


@region(parts=lambda: {"calls": 0})
def side_effects_counter_after_the_last_operation(model: Any, x: Tensor) -> Any:
    """A count behind the last saving operation: early stop never comes to it."""
    h = model.linear(x).sin()
    model.calls += 1
    return h


@region(parts=lambda: {"calls": 0}, early_stop=False)
def side_effects_counter_without_early_stop(model: Any, x: Tensor) -> Any:
    """The same count where a replay runs to its end."""
    h = model.linear(x).sin()
    model.calls += 1
    return h


@region()
def side_effects_file(model: Any, x: Tensor) -> Any:
    """A line written to a file by every call."""
    with pathlib.Path("calls.txt").open("a") as log:
        log.write("called\n")
    return model.linear(x).sin()


@region()
def side_effects_saved_tensor(model: Any, x: Tensor) -> Any:
    """A tensor that every call saves under one name: two files, of which one is left."""
    torch.save(x.detach(), "input.pt")
    return model.linear(x).sin()


@region()
def side_effects_print(model: Any, x: Tensor) -> Any:
    """A line printed by every call."""
    print("called")
    return model.linear(x).sin()


@region(parts=lambda: {"failures": 0})
def side_effects_swallowed_stop(model: Any, x: Tensor) -> Any:
    """A broad except that swallows the exception by which early stop ends a replay."""
    try:
        return model.linear(x).sin()
    except Exception:
        model.failures += 1
        return x


@region()
def side_effects_log(model: Any, x: Tensor) -> Any:
    """A record that every call logs."""
    LOG.warning("called")
    return model.linear(x).sin()


@region()
def side_effects_log_muted(model: Any, x: Tensor) -> Any:
    """A record below the level of its logger, which nobody gets."""
    LOG.debug("called")
    return model.linear(x).sin()


@region()
def side_effects_hook_added(model: Any, x: Tensor) -> Any:
    """A hook that every call adds, and none takes away."""
    model.linear.register_forward_hook(lambda *_: None)
    return model.linear(x).sin()


@functools.cache
def _triangle(size: int) -> Tensor:
    return torch.tril(torch.ones(size, size))


@region()
def side_effects_cached_function(model: Any, x: Tensor) -> Any:
    """A mask from a cache that every call asks: the replay gets what its forward got."""
    return (model.linear(x) @ _triangle(WIDTH).to(x)).sin()


class _Outside(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        self.runs: dict[int, str] = {time.time_ns(): "begun"}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "step.txt").write_text("begun")
        return super().forward(x)


@region(around=_Outside)
def side_effects_random_names_outside(model: Any, x: Tensor) -> Any:
    """Names outside of the region that no two runs share: a temporary folder, keys of the clock."""
    return model.linear(x).sin()
