"""A step as torch's min-cut partitioner cuts it for an ``activation_memory_budget``, executed.

``torch.compile`` traces loss and backward once. PyTorch's own partitioner, with its own settings,
then cuts that graph for each budget, and both halves run operation by operation, as the backend
"aot_eager" has it. So no C++ compiler is needed, and nothing is fused.
"""

import copy
import gc
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from tests.bench.plan_runs import Executed, execute, forward, standing
from tests.integration.live_storages import LiveStorages
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Interpreter
from torch.utils._python_dispatch import TorchDispatchMode

from haversack.torch import Workload
from haversack.torch.roofline import Roofline


class Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the roofline's time of every operation, recomputed ones included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.time_ns = 0.0
        self._roofline = Roofline()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.time_ns += self._roofline.ns(func, args, kwargs or {}, result)
        return result


Timed: TypeAlias = tuple[Executed, float]
"""An executed step, and its time by the roofline in ns."""


def eager(workload: Workload) -> Timed:
    """Run the step as it is, or as a plan in effect has it."""
    clock: Any = Clock()
    with clock:
        executed = execute(workload, allocator=False)
    return executed, clock.time_ns


class Partitioned:
    """The step's graph, forward and backward in one, to be cut for any budget."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._joint: Any = None
        self._sizes: dict[str, Any] = {}
        self._given: list[Any] = []
        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=self._keep_given, partition_fn=self._keep_joint)
        torch.compile(lambda: forward(workload)[1], backend=backend, fullgraph=True)()

    def _keep_joint(self, joint: GraphModule, inputs: Any, **sizes: Any) -> Any:
        assert self._joint is None, "the step has more than one graph"
        self._joint, self._sizes = _copied(joint), sizes
        return min_cut_rematerialization_partition(joint, inputs, **sizes)

    def _keep_given(self, module: GraphModule, _: Any) -> Callable[..., Any]:
        def run(given: list[Any]) -> Any:
            self._given = list(given)
            return Interpreter(module).boxed_run(given)

        run._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd asks for it
        return run

    def execute(self, budget: float) -> Timed:
        """Cut for a budget and run both halves, each letting go of what it needs no more."""
        with config.patch(activation_memory_budget=budget):
            halves = min_cut_rematerialization_partition(_copied(self._joint), (), **self._sizes)
        first, second = halves
        one = torch.ones(())
        gc.collect()
        tracker: Any = LiveStorages([*standing(self._workload), one])
        clock: Any = Clock()  # not while it is cut: there operations are tried out
        torch.manual_seed(1)
        with tracker, clock, torch.no_grad():
            # An interpreter holds its results, so none may outlive its run.
            kept = list(Interpreter(first).boxed_run(list(self._given)))
            loss = kept.pop(0)
            kept.append(one)
            gradients = Interpreter(second).boxed_run(kept)
        found = tuple(each for each in gradients if each is not None)
        return Executed(tracker.peak_bytes, None, loss, found), clock.time_ns


def _copied(module: GraphModule) -> GraphModule:
    """Copy the graph, which partitioning changes, but not the tensors that it refers to."""
    return GraphModule(module, copy.deepcopy(module.graph))
