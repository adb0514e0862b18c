"""One run of a workload, in a process of its own: set up, step, and what can be seen afterwards.

The first plain run leaves its values in a file of the scratch folder, with which later runs
compare theirs, so that no run's tensors travel.
"""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch

from haversack.torch import Workload
from haversack.verify import Facet, VerifyRequest, VerifySchedule
from haversack_server.verify.comparison import Row
from haversack_server.verify.outcome import Outcome, RegionCount
from haversack_server.worker import (
    blocks,
    comparable,
    compare,
    planned,
    planned_segments,
    prepare,
    rng,
)
from haversack_server.worker.accumulation import Accumulation, Unreduced
from haversack_server.worker.between_steps import BetweenSteps
from haversack_server.worker.clock import processor_ns, tick_ns
from haversack_server.worker.effects import Effects
from haversack_server.worker.environment import device_name
from haversack_server.worker.errors import BadWorkloadError, is_device_fault, raised_in
from haversack_server.worker.leaves import Leaves, find_leaves, roots
from haversack_server.worker.memory import LiveStorages
from haversack_server.worker.probes import NONE, Probe, Probes, probes_of
from haversack_server.worker.regions import Call, Regions, intercept, wrap
from haversack_server.worker.settled import settle
from haversack_server.worker.state import snapshot
from haversack_server.worker.step import Step
from haversack_server.worker.taken_gradients import TakenGradients
from haversack_server.worker.values import Values
from haversack_server.worker.watch import MemoryWatch, Meter


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """What is particular to one run.

    ``first`` is the run that the others compare with, by what it leaves in ``values_file``.
    ``wrapped`` names modules that become regions, beside the calls that the model makes itself.
    A run that does not ``decides`` leaves no values. ``last_traced`` is the number of the last call
    that a trace records, None for all. With a ``factor`` losses are multiplied by it, and gradients
    divided where they come to a leaf.
    """

    stage: str
    values_file: str
    checkpointed: bool = False
    first: bool = False
    probes: frozenset[Probe] = NONE
    decides: bool = True
    with_callback: bool = True
    wrapped: tuple[str, ...] = ()
    last_traced: int | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Ready:
    """A workload that is held alike for every run, what was done for it, and what it leaves.

    ``spread`` is the same workload with its model spread over ranks, which the step then runs, and
    ``accumulation`` what that model must be told of two microbatches. ``meter`` counts memory in
    place of the run's own count.
    """

    workload: Workload
    notes: tuple[str, ...]
    leaves: Leaves
    spread: Workload | None = None
    accumulation: Accumulation = field(default_factory=Unreduced)
    meter: Meter | None = None


def make_ready(workload: Workload, request: VerifyRequest) -> Ready:
    """Prepare a workload and look it through, once for all runs that are forked afterwards."""
    workload, notes = prepare.prepare(workload, request)
    return Ready(workload, notes, find_leaves(workload))


def perform(plan: RunPlan, request: VerifyRequest, ready: Ready) -> Outcome:
    """Run the step once and give what it leaves; the process is spent afterwards."""
    memory = _memory_watch(plan, request, ready)
    for device in memory.devices:
        settle(device)
    probes = _probes(plan, ready)
    regions = _install_regions(plan, request, ready.workload, probes)
    step = _step(plan, request, ready, memory)
    between = BetweenSteps(ready.leaves.parameters, ready.leaves.inputs, step.workload.optimizer)
    if plan.decides:
        step.around_optimizer = between.around
    prepare.pin(request)
    clock = time.perf_counter_ns if memory.is_on_gpu else processor_ns
    effects = Effects(_scratch_folder(plan, memory), is_shared=ready.spread is not None)
    with probes.unrepeatable or contextlib.nullcontext():
        spent_ns = _timed(step, memory, clock, effects)
    if step.raised is not None and step.raised.device_fault:
        return Outcome(stage=plan.stage, raised=step.raised)  # nothing on the device can be read
    outcome = Outcome(
        stage=plan.stage,
        raised=step.raised,
        loss=step.loss_said,
        time_ns=spent_ns,
        tick_ns=tick_ns(clock),
        peak_bytes=memory.peak_bytes,
        retained_bytes=memory.retained_bytes,
        device_name=", ".join(map(device_name, memory.devices)),
        notes=ready.notes,
    )
    if not plan.decides:
        return _with_explanations(outcome, probes)
    outcome = _with_values(outcome, plan, ready, regions, step, between, effects)
    return replace(outcome, wrapped=_next_wrapped(plan, request, ready.workload, regions, step))


def _probes(plan: RunPlan, ready: Ready) -> Probes:
    return probes_of(
        plan.probes,
        ready.workload.model,
        ready.leaves,
        checkpointed=plan.checkpointed,
        last_traced=plan.last_traced,
    )


def _step(plan: RunPlan, request: VerifyRequest, ready: Ready, memory: MemoryWatch) -> Step:
    if plan.factor != 1:
        ready.leaves.divide_gradients(plan.factor)  # before others have hooks for a gradient
    return Step(
        ready.spread or ready.workload,
        request.schedule or VerifySchedule.ONE_MICROBATCH,
        plan.with_callback,
        memory.before_backward,
        factor=plan.factor,
        accumulation=ready.accumulation,
        # Ranks have hooks of their own, which reduce.
        taken=TakenGradients({} if ready.spread else ready.leaves.parameters),
    )


def _with_values(
    outcome: Outcome,
    plan: RunPlan,
    ready: Ready,
    regions: Regions,
    step: Step,
    between: BetweenSteps,
    effects: Effects,
) -> Outcome:
    """Add what the step left: values beside those of the first run, and state."""
    generators = rng.default_states()  # before all else: what follows may draw
    state = snapshot(
        roots(ready.workload),
        regions.functions.reached(without=plan.wrapped),
        elsewhere=ready.leaves.frozen_ids(),
        own_changes=between.own_changes(),
    )
    taken = step.taken.of(ready.leaves.parameters) | between.gradients
    left = step.taken.calls_with_gradient(ready.leaves.parameters)
    # Of ranks the model is another one, whose weights are known by name.
    leaves = ready.leaves if ready.spread else ready.leaves.with_late(state.with_gradient)
    values = leaves.values(
        step.outputs,
        step.losses,
        taken,
        between.gradients_of_inputs,
        written=leaves.take_written(state),
    )
    return replace(
        outcome,
        compared={facet: len(named) for facet, named in values.items()},
        rows=tuple(_kept_or_compared(plan, values, leaves)),
        rng=generators | leaves.generator_states() | state.generators,
        state=state.values | effects.values() | left | leaves.retained(state.with_gradient),
        own_changes=state.own_changes,
        truncated=state.truncated,
        regions=tuple(_counts(regions.calls)),
        gradients_all_zero=_all_zero(values),
    )


def _scratch_folder(plan: RunPlan, memory: MemoryWatch) -> pathlib.Path | None:
    """Give the folder whose files are looked at; a GPU's driver keeps files of its own there."""
    is_looked_at = plan.values_file and not memory.is_on_gpu
    return pathlib.Path(plan.values_file).parent if is_looked_at else None


def _with_explanations(outcome: Outcome, probes: Probes) -> Outcome:
    """Add what probes saw."""
    return replace(
        outcome,
        sources=probes.random.sources() if probes.random else (),
        saved=probes.saved.found() if probes.saved else (),
        first_different_call=probes.saved.first_different_call if probes.saved else None,
        changes=probes.state.found() if probes.state else (),
        rewritten=probes.buffers.found() if probes.buffers else (),
        asked=probes.unrepeatable.asked if probes.unrepeatable else (),
        first_difference=probes.trace.first_difference() if probes.trace else None,
        probe_notes=probes.notes(),
    )


def _memory_watch(plan: RunPlan, request: VerifyRequest, ready: Ready) -> MemoryWatch:
    # The watch of the CPU sees one thread.
    in_thread = request.schedule is VerifySchedule.BACKWARD_IN_THREAD
    enabled = Probe.MEMORY in plan.probes and not in_thread
    meter = ready.meter or LiveStorages(resized=ready.spread is not None)
    return MemoryWatch(prepare.run_devices(request), meter if enabled else None)


def _next_wrapped(
    plan: RunPlan, request: VerifyRequest, workload: Workload, regions: Regions, step: Step
) -> tuple[str, ...]:
    """Decide after the first run, which shows whether the model makes calls, for all others."""
    if not plan.first:
        return plan.wrapped
    try:
        return blocks.chosen(workload, request, makes_calls=bool(regions.calls))
    except BadWorkloadError:
        if step.raised:
            return ()  # it may have raised before its first call; let the others show the same
        raise


def _install_regions(
    plan: RunPlan, request: VerifyRequest, workload: Workload, probes: Probes
) -> Regions:
    regions = Regions(
        names=blocks.module_names(workload.model),
        direct=not plan.checkpointed,
        overrides=prepare.overrides(request),
        renamed_check=probes.renamed_check,
        watchers=probes.watchers,
    )
    if probes.trace is not None:
        # What early stop leaves out of a replay cannot be compared.
        regions.to_the_end = probes.trace.records
    intercept(regions)
    if plan.wrapped and request.plan is not None:
        planned_segments.follow(planned.put_into_effect(workload, request.plan), regions)
    elif plan.wrapped:
        modules = blocks.named_blocks(workload.model, plan.wrapped)
        wrap(modules.values(), use_reentrant=request.use_reentrant)
    return regions


def _timed(step: Step, memory: MemoryWatch, clock: Callable[[], int], effects: Effects) -> int:
    with effects, memory.around():
        start_ns = clock()
        step.run()
        _finish(step, memory)
        return clock() - start_ns


def _finish(step: Step, memory: MemoryWatch) -> None:
    """Wait for the device, which may say only now that a kernel of the step failed.

    One that answers has not failed: it refused a launch, say, which the workload may be told of.
    """
    try:
        memory.finish()
    except RuntimeError as error:
        if not is_device_fault(error):
            raise
        if step.raised is None or not step.raised.device_fault:
            step.raised = raised_in("the wait for the device", error)
    else:
        if step.raised is not None:
            step.raised = replace(step.raised, device_fault=False)


def _kept_or_compared(plan: RunPlan, values: dict[str, Values], leaves: Leaves) -> Iterator[Row]:
    values = {facet: comparable.all_comparable(named) for facet, named in values.items()}
    if plan.first:
        comparable.save(values, plan.values_file)
        return
    plain = comparable.load(plan.values_file)
    for facet, named in leaves.as_in(plain, values).items():
        yield from compare.rows(Facet[facet], plain[facet], comparable.all_comparable(named))


def _counts(calls: list[Call]) -> Iterator[RegionCount]:
    for region in dict.fromkeys(call.region for call in calls):
        own = [call for call in calls if call.region == region]
        forwards = [call for call in own if not call.in_replay]
        yield RegionCount(
            region=region,
            entries=sum(call.entries for call in own),
            completions=sum(call.completions for call in own),
            expected_entries=sum(call.expected_entries for call in forwards),
        )


def _all_zero(values: dict[str, Values]) -> bool:
    facets = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
    gradients = [gradient for facet in facets for gradient in values[facet.name].values()]
    return not any(isinstance(each, torch.Tensor) and bool(each.any()) for each in gradients)
