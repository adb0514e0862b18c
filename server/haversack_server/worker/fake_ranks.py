"""What a rank would take, found on a process group that is not there, by PyTorch's own tracker.

The same step as a real rank's, with collectives that move nothing: every buffer is made, and none
holds what another rank would have sent. The tracker is another count than that of real ranks
(``memory``), so that each checks the other. A rank of DistributedDataParallel holds what one
process holds, beside the buckets that are counted for neither.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils import _pytree as pytree

from haversack.torch import Workload
from haversack.torch.sharding import absent_ranks
from haversack.verify import VerifyRequest, VerifyWorld
from haversack_server.verify.outcome import Outcome
from haversack_server.worker import spread, unsharded
from haversack_server.worker.leaves import find_leaves
from haversack_server.worker.run import Ready, RunPlan, perform

_CPU = torch.device("cpu")


class Tracked:
    """Counts live bytes above those of the parameters, buffers and inputs that stand before."""

    def __init__(self, workload: Workload, *, is_sharded: bool) -> None:
        model: Any = workload.model
        given = pytree.tree_leaves((workload.args, dict(workload.kwargs)))
        inputs = [each for each in given if isinstance(each, torch.Tensor)]
        optimizer = workload.optimizer
        tracker: Any = FSDPMemTracker(model, optimizer) if is_sharded else MemTracker()
        if is_sharded:
            tracker.track_inputs(tuple(inputs))
        else:
            tracker.track_external(*filter(None, (model, optimizer)), *inputs)
        self._tracker = tracker
        self._base_bytes = 0

    def __enter__(self) -> "Tracked":
        self._tracker.__enter__()
        self._base_bytes = self.live_bytes
        return self

    def __exit__(self, *error: object) -> None:
        self._tracker.__exit__(*error)

    def forgetting(self, model: Any) -> Callable[..., Any]:
        """Give the model as one that may run twice: its figures by module are dropped before."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._tracker.reset_mod_stats()
            return model(*args, **kwargs)

        return forward

    @property
    def live_bytes(self) -> int:
        """What is live now."""
        now = self._tracker.get_tracker_snapshot().get(_CPU, {})
        return int(now.get("Total", 0)) - self._base_bytes

    @property
    def peak_bytes(self) -> int:
        """What was live at the highest moment since it was entered."""
        return int(self._tracker._peak_mem.get(_CPU, 0)) - self._base_bytes


def run_fake_rank(
    plan: RunPlan, rank: int, workload: Workload, request: VerifyRequest, world: VerifyWorld
) -> Outcome:
    """Run a rank's step on no ranks; the process is spent afterwards."""
    warnings.simplefilter("ignore")  # of the tracker, about what it does not follow
    leaves = find_leaves(workload)
    with absent_ranks(world.size, rank):
        way = spread.way_of(workload, request, world)
        whole = spread.spread(workload, way, "cpu") if way.is_sharded else workload
        meter = Tracked(whole, is_sharded=way.is_sharded)
        whole = spread.with_model(whole, meter.forgetting(whole.model))
        ready = Ready(workload, (), leaves, whole, meter=meter)
        return perform(plan, unsharded.of_rank(request, rank), ready)
