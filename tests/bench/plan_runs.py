"""A model's real step, executed: its peaks by two counts, its loss and its gradients.

The tracker counts live storages, and states of the generator; the allocator is the CPU's, as
PyTorch's profiler hears of it, and has the workspaces of kernels in it. Parameters, buffers and
arguments are beside both.
"""

import gc
from dataclasses import dataclass
from typing import Any

import torch
from tests.integration.live_storages import LiveStorages
from torch.utils._pytree import tree_leaves

from haversack.torch import Workload


@dataclass(frozen=True, slots=True)
class Executed:
    """One step; bytes leave out what stood before it.

    ``allocated_bytes`` is None where only the tracker ran.
    """

    tracked_bytes: int
    allocated_bytes: int | None
    loss: torch.Tensor
    gradients: tuple[torch.Tensor, ...]

    def equals(self, other: "Executed") -> bool:
        """Whether loss and gradients are equal to the bit."""
        return torch.equal(self.loss, other.loss) and all(
            map(torch.equal, self.gradients, other.gradients)
        )


def execute(workload: Workload, *, allocator: bool = True) -> Executed:
    """Run the step under the tracker, and once more under the allocator's count if asked."""
    tracked, loss, gradients = _tracked(workload)
    return Executed(tracked, _allocated(workload) if allocator else None, loss, gradients)


def tracked_bytes(workload: Workload) -> int:
    """Run the step under the tracker alone."""
    return _tracked(workload)[0]


def standing_bytes(workload: Workload) -> int:
    """Add up parameters, buffers and arguments."""
    found = {
        each.untyped_storage()._cdata: each.untyped_storage().nbytes()
        for each in standing(workload)
    }
    return sum(found.values())


def standing(workload: Workload) -> list[torch.Tensor]:
    """List parameters, buffers and arguments."""
    model: Any = workload.model
    given = tree_leaves((workload.args, dict(workload.kwargs)))
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    return [*model.parameters(), *model.buffers(), *tensors]


def forward(workload: Workload) -> Any:
    """Run the forward; give the output and the loss."""
    output = workload.model(*workload.args, **workload.kwargs)
    return output, workload.loss(output) if workload.loss is not None else output.loss


def _step(workload: Workload) -> Any:
    torch.manual_seed(1)
    output, loss = forward(workload)
    loss.backward()
    return output, loss


def _tracked(workload: Workload) -> tuple[int, torch.Tensor, tuple[torch.Tensor, ...]]:
    model: Any = workload.model
    gc.collect()
    tracker: Any = LiveStorages(standing(workload), states=True)
    with tracker:
        _, loss = _step(workload)
    gradients = tuple(each.grad for each in model.parameters() if each.grad is not None)
    model.zero_grad()
    return tracker.peak_bytes, loss.detach(), gradients


def _allocated(workload: Workload) -> int:
    model: Any = workload.model
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        held = _step(workload)
    del held
    model.zero_grad()
    results: Any = profiler.profiler
    live = peak = 0
    for event in sorted(results.kineto_results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak
