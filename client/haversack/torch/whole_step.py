"""A whole training step under fake tensors, as a plan has it: microbatches, then the optimizer.

What is live is counted from the first parameter on, so the highest moment is the step's peak. The
plan is put into effect by ``apply``, and every storage is followed from its making to its end:
nothing here reads a table or a prediction.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.observed import BACKWARD, FORWARD, OPTIMIZER, Observed
from haversack.parallelism import Parallelism
from haversack.plan import Plan
from haversack.spread import Spread, spread_of
from haversack.torch.applying import apply
from haversack.torch.casting import types_of
from haversack.torch.fake_step import check_workload, refusal_of
from haversack.torch.fakes import fake_of, faked
from haversack.torch.loss import loss_of
from haversack.torch.optimizers import (
    forget_gradients,
    parameters_by_name,
    stepping,
    storage_bytes,
)
from haversack.torch.own_calls import refusing_kept_graphs
from haversack.torch.regions import caching_configs
from haversack.torch.replicating import first_buckets, replicated
from haversack.torch.roofline import Roofline
from haversack.torch.sharded_storages import ShardedStorages
from haversack.torch.sharding import on_a_rank, own_part
from haversack.torch.storages import Event, Storages
from haversack.torch.watching import Watch
from haversack.torch.workload import Workload

# The second finds gradients and an output before it; what comes after the third is as it is.
_MOST_MICROBATCHES = 3


def whole_step(
    workload: Workload,
    plan: Plan,
    *,
    microbatches: int = 1,
    parallelism: Parallelism | None = None,
) -> Observed:
    """Run a planned step and read the highest live bytes of every moment.

    The optimizer is the workload's, with its state there from the start, as in every step but the
    first; without one the step ends with its last backward. With a ``parallelism`` it is the step
    of rank 0 under ``DistributedDataParallel``, or under ``fully_shard``, whose units are the
    plan's blocks. The model and the optimizer are left as they were. Raises what ``apply`` and
    ``profile`` raise.
    """
    model = check_workload(workload)
    names = {id(module): name for name, module in model.named_modules()}
    try:
        with refusing_kept_graphs(names):
            return _observed(workload, model, plan, microbatches, parallelism or Parallelism())
    except Exception as error:
        refusal = refusal_of(error, names)
        if refusal is None:
            raise  # the user's own
        raise NotSupportedError(refusal) from error


def _observed(
    workload: Workload,
    model: nn.Module,
    plan: Plan,
    microbatches: int,
    parallelism: Parallelism,
) -> Observed:
    real = parameters_by_name(model)
    with ExitStack() as stack:
        mode = stack.enter_context(_fake(model))
        types = types_of(model, plan)
        stack.enter_context(on_a_rank(model, _blocks(model, plan), parallelism, types))
        fake = parameters_by_name(model)
        stack.enter_context(stepping(workload.optimizer, real, fake, mode))
        stack.enter_context(mode)
        applied = stack.enter_context(apply(model, plan))
        applied.leave_generators()
        step = _Step(workload, model, plan, mode, parallelism)
        # Twice with an optimizer: its first step makes the state that all others find.
        for _ in range(1 if workload.optimizer is None else 2):
            step.run(microbatches)
        return step.read()


def _in_words(spread: Spread) -> str:
    if spread.ranks == 1:
        return ""
    wrapper = "DistributedDataParallel" if spread.is_replicated else "fully_shard"
    return f", rank 0 of {spread.ranks} under {wrapper}"


def _blocks(model: nn.Module, plan: Plan) -> dict[str, nn.Module]:
    names = [each.block for each in plan.actions if not each.block.startswith("(")]
    modules = dict(model.named_modules())
    missing = next((name for name in names if name not in modules), None)
    if missing is not None:
        raise InvalidRequestError(
            f"the plan is of another model: this one has no {missing}", field="plan.actions"
        )
    return {name: modules[name] for name in names}


@contextmanager
def _fake(model: nn.Module) -> Iterator[FakeTensorMode]:
    """Make the model fake, and have it keep no cache; cycles are not collected meanwhile."""
    collects = gc.isenabled()
    with ExitStack() as stack:
        for config in caching_configs(model):
            config.use_cache = False
            stack.callback(setattr, config, "use_cache", True)
        gc.disable()
        stack.callback(gc.collect)
        if collects:
            stack.callback(gc.enable)
        yield stack.enter_context(faked(model))


class _Step:
    """Runs the step again and again, and reads the last one."""

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        plan: Plan,
        mode: FakeTensorMode,
        parallelism: Parallelism,
    ) -> None:
        self._workload = workload
        self._model = model
        self._spread = spread_of(parallelism)
        self._given = fake_of(mode, (workload.args, dict(workload.kwargs)))
        blocks = _blocks(model, plan)
        self._watch = Watch(blocks, Roofline())
        for name, block in blocks.items():
            block.__dict__["forward"] = self._watch.around(name, block.forward)
        storages = ShardedStorages if self._spread.shards > 1 else Storages
        self._storages: Any = storages(self._watch.record, lambda *_: None)
        self._marks: list[tuple[int, str]] = []
        self._held: dict[str, Any] = {}
        parameters = [own_part(each) for each in model.parameters()]
        standing = parameters, list(model.buffers()), self._given
        self._standing_bytes = storage_bytes(standing)
        self._forward: Callable[..., Any] = model
        if self._spread.is_replicated:
            with self._storages:
                self._forward = replicated(model, parallelism)
                self._first_buckets = first_buckets(model, parallelism, plan.counted)

    def run(self, microbatches: int) -> None:
        """Run one step; what an earlier one noted is forgotten, what it left behind is not."""
        self._marks.clear()
        with self._storages:
            for _ in range(min(microbatches, _MOST_MICROBATCHES)):
                self._microbatch()
            self._mark(OPTIMIZER)
            optimizer = self._workload.optimizer
            if optimizer is not None:
                optimizer.step()
            self._held = {}
            self._mark("")
            for parameter in self._model.parameters():
                parameter.grad = None

    def _microbatch(self) -> None:
        workload, watch = self._workload, self._watch
        args, kwargs = self._given
        forget_gradients(self._given)
        watch.order.clear()
        watch.record.part, watch.record.in_backward = 0, False
        self._mark(FORWARD)
        # Names of a training loop: an output is there until the next one takes its place.
        self._held["output"] = self._forward(*args, **kwargs)
        self._held["loss"] = loss_of(workload, self._held["output"]).tensor
        if workload.between_forward_and_backward is not None:
            workload.between_forward_and_backward()
        watch.record.in_backward = True
        self._mark(BACKWARD)
        torch.autograd.backward(self._held["loss"])

    def _mark(self, phase: str) -> None:
        self._marks.append((len(self._watch.record.events), phase))

    def read(self) -> Observed:
        """Add up what is live, event by event, and keep the highest of each moment."""
        peaks: dict[tuple[str, str], int] = {}
        for at, live in self._levels():
            peaks[at] = max(live, peaks.get(at, 0))
        optimizer = self._workload.optimizer
        return Observed(
            phase=tuple(phase for phase, _ in peaks),
            block=tuple(block for _, block in peaks),
            peak_bytes=tuple(peaks.values()),
            method=f"the whole step under fake tensors, torch {torch.__version__}, "
            + (f"with {type(optimizer).__name__}" if optimizer is not None else "no optimizer")
            + _in_words(self._spread),
        )

    def _levels(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Give the live bytes after each event of the last step, with the moment they are of."""
        events, live = self._watch.record.events, self._standing_bytes
        live += sum(each.delta_bytes for each in events[: self._marks[0][0]])
        ends = [start for start, _ in self._marks[1:]] + [len(events)]
        for (start, phase), end in zip(self._marks, ends, strict=True):
            if not phase:
                return
            yield (phase, self._block(phase, events[start:end])), live
            for event in events[start:end]:
                live += event.delta_bytes
                yield (phase, self._block(phase, [event])), live

    def _block(self, phase: str, events: Iterable[Event]) -> str:
        """Name the part that the first of some events lies in."""
        first = next(iter(events), None)
        if phase == OPTIMIZER or first is None:
            return ""
        order, part = self._watch.order, first.part
        if part % 2:
            return order[part // 2]
        return f"(after {order[part // 2 - 1]})" if part else f"(before {order[0]})"
