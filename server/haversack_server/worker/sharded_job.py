"""A sharded job: every run on all ranks at once, and once on one process for comparison.

As in a job of one process every run is a copy of the same memory, here one for each rank. Rank r
builds its workload with the seed plus r, so that its inputs are its own, and takes the parameters
of rank 0.
"""

import pathlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from haversack.torch import Workload
from haversack.verify import (
    FailureReason,
    VerifyFailure,
    VerifyPlan,
    VerifyProgress,
    VerifyReport,
    VerifyRequest,
    VerifySchedule,
    VerifyWorld,
)
from haversack_server.verify import records, reports
from haversack_server.verify.evidence import assumptions
from haversack_server.verify.findings import is_unexplained
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.verify.rank_evidence import with_ranks
from haversack_server.verify.rank_predictions import Predicted, with_predicted
from haversack_server.verify.ranks import RankOutcome, RankRuns, merged, sharded
from haversack_server.verify.shardable import as_planned
from haversack_server.worker import planned_ranks, prepare, rank_notes, spread, unsharded
from haversack_server.worker.collectives import Collectives
from haversack_server.worker.environment import environment
from haversack_server.worker.errors import JobEnded, outcome_of, while_building
from haversack_server.worker.fork import Ended, run_forked
from haversack_server.worker.leaves import find_leaves
from haversack_server.worker.planned import unless_raised
from haversack_server.worker.predicted import predict
from haversack_server.worker.probes import OF_RANKS, OF_TRACED
from haversack_server.worker.ranks import RankLostError, patience_s, run_ranks
from haversack_server.worker.run import Ready, RunPlan, perform
from haversack_server.worker.shared_folder import SharedFolder
from haversack_server.worker.untouched import kept_forkable

PLAIN, AGAIN, CHECKPOINTED = "sharded plain", "sharded plain again", "sharded checkpointed"
WATCHED_PLAIN, WATCHED = "sharded plain under probes", "sharded checkpointed under probes"
TRACED, PLANNED = "sharded traced", "sharded, measured as planned"


@dataclass(slots=True)
class ShardedJob:
    """Runs a request of several ranks; ``load`` builds the workload with a seed."""

    request: VerifyRequest
    world: VerifyWorld
    load: Callable[[int], Workload]
    folder: pathlib.Path
    tell: Callable[[VerifyProgress], None]
    workloads: list[Workload] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shared: SharedFolder = field(init=False)
    compares: bool = True
    completed: int = 0
    total: int = 7

    def report(self, report: VerifyReport, isolation: Sequence[str]) -> VerifyReport:
        """Give the report, whatever happens to ranks."""
        try:
            self._build()
            self._unsharded()
            runs = self._runs()
        except JobEnded as ended:
            return reports.failed(report, ended.failure)
        outcomes = runs.outcomes()
        failure = reports.without_comparison(outcomes)
        if failure is not None:
            return reports.failed(report, failure)
        where = environment(self.request, outcomes.plain.device_name, isolation)
        compared = reports.compared(
            report, self.request, outcomes, environment=where, pinned=self._pinned()
        )
        # Ranks have fewer probes, and these say so themselves.
        said = assumptions(replace(outcomes, watched=None), self.request)
        compared = replace(compared, assumptions=(*said, *reports.unmeasured(outcomes)))
        way = self._way(0)
        units = (*way.units, spread.ROOT) if way.is_sharded else ()
        found = sharded(runs, self.world, where.backend, units)
        if runs.watched:
            found = with_predicted(found, self._predicted(runs.plain[0].outcome.wrapped))
        return with_ranks(compared, found, notes=self.notes, strict=self.request.strict)

    def _predicted(self, wrapped: tuple[str, ...]) -> Predicted:
        return predict(self.workloads, self.request, self.world, wrapped)

    def _pinned(self) -> tuple[str, ...]:
        seeds = f"Rank r has seed {self.request.seed} + r, and the parameters of rank 0"
        return (*prepare.pinned(self.request), seeds)

    def _build(self) -> None:
        with while_building(), kept_forkable(self._kind):
            for rank in range(self.world.size):
                # On the CPU: what has touched a GPU cannot be forked.
                request = replace(unsharded.of_rank(self.request, rank), device="")
                workload, notes = prepare.prepare(self.load(request.seed), request)
                spread.check_spreadable(workload)
                if rank:
                    unsharded.take_parameters(workload, self.workloads[0])
                else:
                    self.notes += notes
                self.workloads.append(workload)
        self.shared = SharedFolder(self.folder, is_looked_at=self._kind == "cpu")
        self.total += as_planned(self.request) is not None
        way = self._way(0)
        self.compares = not way.computes_otherwise
        self.notes += [*rank_notes.of_ranks(self.request, way, self.workloads), *self.shared.notes]
        self._tell("build")

    def _unsharded(self) -> None:
        """Run each rank's step by itself; for a second step, first what the optimizer steps by."""
        if self.request.schedule is VerifySchedule.TWO_STEPS:
            first = replace(self.request, schedule=VerifySchedule.ONE_MICROBATCH)
            self._of_each_rank(first, self._file("unsharded first"))
        if self.compares:
            self._of_each_rank(self.request, self._file("unsharded"))
        self._tell(unsharded.STAGE)

    def _of_each_rank(self, request: VerifyRequest, file: str) -> None:
        for rank in range(self.world.size):
            outcome = self._of_one_process(rank, request, file)
            self._end_if(reports.failure_of(outcome))
            if outcome.raised is not None and self.compares:
                self.compares = False
                self.notes.append(
                    "Nothing is compared with one process: there the plain run of rank "
                    f"{rank} raises, in {outcome.raised.part}: {outcome.raised}"
                )

    def _of_one_process(self, rank: int, request: VerifyRequest, file: str) -> Outcome:
        stage = unsharded.STAGE

        def mean() -> unsharded.Values:
            return unsharded.mean_of_ranks(self._file("unsharded first"), self.world.size)

        def work() -> Outcome:
            try:
                return unsharded.run_unsharded(self.workloads[rank], rank, request, file, mean)
            except Exception as error:  # what keeps it from being run is its outcome
                return outcome_of(stage, error)

        self.shared.put_back()
        found = run_forked(lambda: records.to_json(work()))
        if isinstance(found, Ended):
            return Outcome(stage=stage, is_lost=True, exit_status=found.status)
        return records.from_json(Outcome, found)

    def _runs(self) -> RankRuns:
        plain = self._run(PLAIN, first=True)
        wrapped = plain[0].outcome.wrapped
        again = self._run(AGAIN, wrapped=wrapped)
        checkpointed = self._run(CHECKPOINTED, checkpointed=True, wrapped=wrapped)
        runs = RankRuns(plain=plain, again=again, checkpointed=checkpointed)
        if is_unexplained(runs.outcomes()):
            runs = replace(runs, traced=self._traced(wrapped))
        if any(rank.outcome.raised for run in (plain, again, checkpointed) for rank in run):
            return runs
        settings: dict[str, Any] = {"probes": OF_RANKS, "decides": False, "wrapped": wrapped}
        return replace(
            runs,
            watched_plain=self._run(WATCHED_PLAIN, **settings),
            watched=self._run(WATCHED, checkpointed=True, **settings),
            planned=self._planned(),
        )

    def _planned(self) -> list[RankOutcome]:
        """Measure steps of a plan of as many ranks; ranks that are lost there decide nothing."""
        plan = self.request.plan
        if plan is None or as_planned(self.request) is None:
            return []
        try:
            return self._on_ranks(PLANNED, lambda rank: self._measured(rank, plan))
        except JobEnded as ended:
            if ended.failure.reason is not FailureReason.RANK_LOST:
                raise
            lost = Raised(part=PLANNED, kind="RankLost", message=ended.failure.message)
            ranks = range(self.world.size)
            return [RankOutcome(rank=r, outcome=Outcome(stage=PLANNED, raised=lost)) for r in ranks]

    def _measured(self, rank: int, plan: VerifyPlan) -> RankOutcome:
        request = unsharded.of_rank(self.request, rank)
        workload, _ = prepare.prepare(self.workloads[rank], request)
        prepare.pin(request)
        way = self._way(rank)
        outcome = unless_raised(
            PLANNED,
            lambda: planned_ranks.measured_on_rank(workload, plan, way, self._kind, rank),
        )
        return RankOutcome(rank=rank, outcome=outcome, ended_ns=time.monotonic_ns())

    def _traced(self, wrapped: tuple[str, ...]) -> list[RankOutcome]:
        self.total += 1
        settings: dict[str, Any] = {"probes": OF_TRACED, "decides": False, "wrapped": wrapped}
        return self._run(TRACED, checkpointed=True, **settings)

    def _run(self, stage: str, **settings: Any) -> list[RankOutcome]:
        plan = RunPlan(stage=stage, values_file=self._file("values"), **settings)
        found = self._on_ranks(stage, lambda rank: self._performed(rank, plan))
        return self.shared.looked_at(found)

    def _on_ranks(self, stage: str, work: Callable[[int], RankOutcome]) -> list[RankOutcome]:
        self.shared.put_back()
        try:
            frames = run_ranks(
                self.world.size,
                lambda rank: records.to_json(self._rank(stage, rank, work)),
                patience_s=self._patience_s(),
            )
        except RankLostError as lost:
            raise JobEnded(_lost(stage, f"{lost} in the {stage} run", lost.exit_status)) from lost
        found = [records.from_json(RankOutcome, frames[rank]) for rank in sorted(frames)]
        for each in (each for each in found if each.unreachable):
            raise JobEnded(_lost(stage, each.unreachable))
        self._end_if(reports.failure_of(merged(found)))
        self._tell(stage)
        return found

    def _rank(self, stage: str, rank: int, work: Callable[[int], RankOutcome]) -> RankOutcome:
        try:
            file, patience_s = self._file(stage), self._patience_s()
            spread.join(file, rank, self.world.size, self._kind, patience_s)
            return work(rank)
        except spread.UnreachableError as lost:
            return RankOutcome(rank=rank, outcome=Outcome(stage=stage), unreachable=str(lost))
        except Exception as error:  # what keeps it from being run is its outcome
            return RankOutcome(rank=rank, outcome=outcome_of(stage, error))

    def _performed(self, rank: int, plan: RunPlan) -> RankOutcome:
        request = unsharded.of_rank(self.request, rank)
        workload, _ = prepare.prepare(self.workloads[rank], request)
        model = spread.check_spreadable(workload)
        leaves = find_leaves(workload)
        whole = spread.spread(workload, self._way(rank), self._kind)
        ready = Ready(
            workload,
            (),
            spread.of_shards(leaves, model),
            whole,
            accumulation=spread.accumulation_of(whole),
        )
        plan = replace(plan, values_file=f"{plan.values_file}.{rank}")
        with Collectives() as collectives:
            outcome = perform(plan, request, ready)
        found = RankOutcome(
            rank=rank,
            outcome=outcome,
            collectives=dict(collectives.counts),
            parameter_bytes=spread.held_bytes(model),
            ended_ns=time.monotonic_ns(),
        )
        # A rank that leaves early would take what it sent with it.
        if outcome.raised is not None or not spread.met() or not (plan.first and self.compares):
            return found
        values = unsharded.read_values(plan.values_file)
        gradients = spread.whole_gradients(model)
        rows, counts = unsharded.against_unsharded(
            rank, self.world.size, values, gradients, self._file("unsharded")
        )
        spread.met()
        return replace(found, against=tuple(rows), against_counts=counts)

    def _way(self, rank: int) -> spread.Way:
        return spread.way_of(self.workloads[rank], self.request, self.world)

    @property
    def _kind(self) -> str:
        return self.request.device.partition(":")[0] or "cpu"

    def _patience_s(self) -> float:
        return patience_s(self.request.limits.deadline_ns)

    def _file(self, name: str) -> str:
        return str(self.folder / f"{name.replace(' ', '-')}.ranks")

    def _end_if(self, failure: VerifyFailure | None) -> None:
        if failure is not None:
            raise JobEnded(failure)

    def _tell(self, stage: str) -> None:
        self.completed += 1
        self.tell(VerifyProgress(stage=stage, completed=self.completed, total=self.total))


def _lost(stage: str, message: str, exit_status: int | None = None) -> VerifyFailure:
    return VerifyFailure(
        reason=FailureReason.RANK_LOST, message=message, exit_status=exit_status, stage=stage
    )
