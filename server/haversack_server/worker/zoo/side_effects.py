"""Effects of a region that no value depends on: a replay has them once more.

Early stop ends a replay at the last tensor that is needed, so what stands behind it happens once.
"""

import pathlib
from typing import Any

import torch

from haversack_server.worker.zoo.case import region

Tensor = torch.Tensor


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
