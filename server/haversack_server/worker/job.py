"""One job: build the workload, run it plain, plain again and checkpointed, and report.

The second plain run is under the probe of memory; where it is not the first, bit for bit, another
one without the probe takes its place, so that no probe decides.

Each run is a process forked from the job, so that all start from the same memory: models, closures
and globals alike. On a GPU too, where each run moves its copy there: a process that has used a GPU
cannot be forked, and of one that has started threads a copy is without them. So where building the
workload does either, every run builds it itself.
"""

import pathlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haversack.torch import Workload
from haversack.verify import VerifyPlan, VerifyProgress, VerifyReport
from haversack_server.verify import frames, records, reports
from haversack_server.verify.chance import settled
from haversack_server.verify.findings import Outcomes, is_unexplained, repeats
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.resumable import Resume, resume_of
from haversack_server.verify.rewritten import without_tolerance
from haversack_server.verify.rounded import EXACT, FACTORS, is_exact, may_be_rounding
from haversack_server.worker.environment import environment
from haversack_server.worker.errors import JobEnded, is_of_fork, outcome_of, while_building
from haversack_server.worker.fork import Ended, gave_up, give_up, goes_on_as_copy, run_forked
from haversack_server.worker.order import Order, loaded, loaded_training
from haversack_server.worker.planned import measured
from haversack_server.worker.prepare import pin, pinned
from haversack_server.worker.probes import OF_CHECKPOINTED, OF_PLAIN, OF_TRACED
from haversack_server.worker.run import Ready, RunPlan, make_ready, perform
from haversack_server.worker.scratch import Scratch
from haversack_server.worker.untouched import Untouched, preload, thread_count

PLAIN, AGAIN, CHECKPOINTED = "plain", "plain again", "checkpointed"
ONCE_MORE, WATCHED, CONTROL = "plain once more", "checkpointed under probes", "control"
TRACED, ROUNDED, PLANNED = "traced", "plain, rounded otherwise", "measured as planned"
_BUILT_ANEW = (
    "Building the workload uses a GPU or starts threads, so that a copy of what is built could not "
    "use the GPU or would be without the threads: every run builds it anew, with the same seed"
)


def serve(channel: socket.socket, isolation: Sequence[str]) -> None:
    """Take an order, run it, send its events and its report."""
    message = frames.receive(channel)
    if message is None:
        return  # the server went away
    order = replace(records.from_json(Order, message), isolation=tuple(isolation))
    where = environment(order.request, "", isolation)  # before all that may end the process
    frames.send(channel, {"environment": records.to_json(where)})
    report = _report(order, channel)
    frames.send(channel, {"report": records.to_json(report)})


def _report(order: Order, channel: socket.socket) -> VerifyReport:
    request, world = order.request, order.request.world
    if request.resume is not None and world is not None:
        return _resumed(order, resume_of(request.resume, world), channel)
    if world is None or world.size == 1:
        return _Job(order, channel, total=5 + (request.plan is not None)).report()
    # torch.distributed takes seconds to load, and most jobs need none of it.
    from haversack_server.worker.sharded_job import ShardedJob

    sharded = ShardedJob(
        request=request,
        world=world,
        load=lambda seed: loaded(order, seed),
        folder=pathlib.Path(order.values_file).parent,
        tell=lambda progress: _told(channel, progress),
    )
    return sharded.report(reports.blank(request, order.job_id), order.isolation)


def _resumed(order: Order, resume: Resume, channel: socket.socket) -> VerifyReport:
    from haversack_server.worker.resume_job import ResumeJob

    job = ResumeJob(
        request=order.request,
        resume=resume,
        load=lambda: loaded_training(order),
        folder=pathlib.Path(order.values_file).parent,
        tell=lambda progress: _told(channel, progress),
    )
    return job.report(reports.blank(order.request, order.job_id), order.isolation)


def _told(channel: socket.socket, progress: VerifyProgress) -> None:
    frames.send(channel, {"progress": records.to_json(progress)})


@dataclass(slots=True)
class _Job:
    """Runs an order; ``workload`` is what runs are copies of, None where each builds its own.

    ``ready`` is that workload looked through, if that could be done before the runs. What is a copy
    (``is_copy``) of a job may give up, and the job goes on.
    """

    order: Order
    channel: socket.socket
    workload: Workload | None = None
    ready: Ready | None = None
    is_copy: bool = False
    notes: tuple[str, ...] = ()
    scratch: Scratch | None = None
    completed: int = 0
    total: int = 5

    def report(self) -> VerifyReport:
        order = self.order
        report = reports.blank(order.request, order.job_id)
        try:
            self._build()
            runs = self._runs()
            runs = replace(runs, planned=self._planned(runs))
        except JobEnded as ended:
            return reports.failed(report, ended.failure)
        failure = reports.without_comparison(runs)
        if failure is not None:
            return reports.failed(report, failure)
        return reports.compared(
            report,
            order.request,
            runs,
            environment=environment(order.request, runs.plain.device_name, order.isolation),
            pinned=pinned(order.request, are_copies=self.workload is not None),
        )

    def _build(self) -> None:
        # There before the first run writes it: all find the same names in their folder.
        pathlib.Path(self.order.values_file).touch()
        goes_on = self._goes_on_built if self._on_gpu() else self._goes_on_ready
        if not goes_on():
            self.notes = (_BUILT_ANEW,)
            self.total -= 1
            return
        self.scratch = Scratch(pathlib.Path(self.order.values_file).parent)
        self.notes = self.scratch.notes
        self.total += self._has_callback()
        self._tell("build")

    def _goes_on_ready(self) -> bool:
        """Go on as a copy that has built the workload for the CPU, if it started no thread."""
        return goes_on_as_copy(self._builds_alone)

    def _builds_alone(self) -> bool:
        threads = thread_count()
        with while_building():
            self.workload = self._loaded()
            self.ready = make_ready(self.workload, self.order.request)
        return thread_count() <= threads

    def _goes_on_built(self) -> bool:
        """Go on as a copy that has built the workload and left GPUs alone; false where it did not.

        What a job comes back to then has at least loaded torch's parts, if that left them alone.
        """
        self.is_copy = goes_on_as_copy(_preloads_untouched)
        if (self.order.request.device_count or 1) > 1:
            return False  # the factory puts the model on GPUs itself
        if not goes_on_as_copy(self._builds_untouched):
            return False
        self.is_copy = True
        return True

    def _builds_untouched(self) -> bool:
        untouched = Untouched()
        with while_building():
            self.workload = self._loaded()
        return untouched.holds()

    def _loaded(self) -> Workload:
        return loaded(self.order, self.order.request.seed)

    def _started_from(self) -> Ready:
        """Give what a run starts from, in the process of that run."""
        ready = self.ready or make_ready(self.workload or self._loaded(), self.order.request)
        return replace(ready, notes=(*ready.notes, *self.notes))

    def _on_gpu(self) -> bool:
        return self.order.request.device.startswith("cuda")

    def _runs(self) -> Outcomes:
        plain = self._run(PLAIN, first=True)
        wrapped = plain.wrapped
        watched = self._run(AGAIN, probes=OF_PLAIN, wrapped=wrapped)
        again = watched
        if not repeats(plain, watched):
            again = self._once_more(wrapped)  # a probe must not be what makes it another run
        checkpointed = self._run(CHECKPOINTED, checkpointed=True, wrapped=wrapped)
        runs = Outcomes(plain=plain, again=again, checkpointed=checkpointed)
        if not (plain.raised or again.raised):
            runs = self._explained(replace(runs, watched_plain=watched), wrapped)
        return settled(runs, lambda: self._once_more(wrapped))

    def _once_more(self, wrapped: tuple[str, ...]) -> Outcome:
        self.total += 1
        return self._run(ONCE_MORE, wrapped=wrapped)

    def _explained(self, runs: Outcomes, wrapped: tuple[str, ...]) -> Outcomes:
        """Add the runs that explain; a control only where there is something to compare it with."""
        settings: dict[str, Any] = {"checkpointed": True, "decides": False, "wrapped": wrapped}
        raised = runs.checkpointed.raised is not None
        # Before a stage is told: its number is one of all that are to come.
        self.total += is_unexplained(runs) - (raised and self._has_callback())
        watched = self._run(WATCHED, probes=OF_CHECKPOINTED, **settings)
        control = None if raised else self._control(wrapped)
        runs = replace(runs, watched=watched, control=control)
        if is_unexplained(runs):
            runs = replace(runs, traced=self._traced(watched.first_different_call, settings))
            runs = replace(runs, rounded=tuple(self._rounded(runs, wrapped)))
        return runs

    def _rounded(self, runs: Outcomes, wrapped: tuple[str, ...]) -> Iterator[Outcome]:
        """Run it plain with other roundings, where those may be all that differs."""
        rows = without_tolerance(runs.plain, runs.checkpointed, runs.watched, runs.traced)
        if runs.checkpointed.raised or not may_be_rounding(rows):
            return
        self.total += 1
        if is_exact(self._run(ROUNDED, factor=EXACT, wrapped=wrapped)):
            self.total += len(FACTORS)
            for factor in FACTORS:
                yield self._run(ROUNDED, factor=factor, wrapped=wrapped)

    def _traced(self, last: int | None, settings: Mapping[str, Any]) -> Outcome:
        """Trace up to a call whose replay is known to differ; to the end where that shows none.

        Traced replays are not stopped early, and where regions lie in each other may make calls
        that others did not.
        """
        traced = self._run(TRACED, probes=OF_TRACED, last_traced=last, **settings)
        if traced.first_difference is None and last is not None:
            self.total += 1
            traced = self._run(TRACED, probes=OF_TRACED, **settings)
        return traced

    def _planned(self, runs: Outcomes) -> Outcome | None:
        """Measure steps of the plan; where one raises there is no peak."""
        plan = self.order.request.plan
        if plan is None or runs.plain.raised or runs.checkpointed.raised:
            return None
        return self._forked(PLANNED, lambda: self._measured(plan))

    def _measured(self, plan: VerifyPlan) -> Outcome:
        ready = self._started_from()
        pin(self.order.request)
        return measured(ready.workload, plan, PLANNED)

    def _control(self, wrapped: tuple[str, ...]) -> Outcome | None:
        if not self._has_callback():
            return None
        return self._run(CONTROL, with_callback=False, wrapped=wrapped)

    def _has_callback(self) -> bool:
        workload = self.workload
        return workload is not None and workload.between_forward_and_backward is not None

    def _run(self, stage: str, **settings: Any) -> Outcome:
        plan = RunPlan(stage=stage, values_file=self.order.values_file, **settings)
        return self._forked(stage, lambda: self._perform(plan))

    def _perform(self, plan: RunPlan) -> Outcome:
        return perform(plan, self.order.request, self._started_from())

    def _forked(self, stage: str, work: Callable[[], Outcome]) -> Outcome:
        if self.scratch is not None:
            self.scratch.put_back()
        found = run_forked(lambda: records.to_json(self._guarded(stage, work)))
        if isinstance(found, Ended):
            if self.is_copy and gave_up(found.status):
                give_up()
            outcome = Outcome(stage=stage, is_lost=True, exit_status=found.status)
        else:
            outcome = records.from_json(Outcome, found)
        failure = reports.failure_of(outcome)
        if failure is not None:
            raise JobEnded(failure)
        self._tell(stage)
        return outcome

    def _guarded(self, stage: str, work: Callable[[], Outcome]) -> Outcome:
        try:
            return work()
        except Exception as error:  # what keeps a stage from being run is its outcome
            if self.is_copy and is_of_fork(error):
                give_up()  # it was not untouched, after all
            return outcome_of(stage, error)

    def _tell(self, stage: str) -> None:
        self.completed += 1
        progress = VerifyProgress(stage=stage, completed=self.completed, total=self.total)
        _told(self.channel, progress)


def _preloads_untouched() -> bool:
    untouched = Untouched()
    preload()
    return untouched.holds()
