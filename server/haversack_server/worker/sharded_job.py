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

import torch

from haversack.torch import Workload
from haversack.verify import (
    FailureReason,
    VerifyFailure,
    VerifyProgress,
    VerifyReport,
    VerifyRequest,
    VerifyWorld,
)
from haversack_server.verify import records, reports
from haversack_server.verify.evidence import assumptions
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.ranks import RankOutcome, RankRuns, merged, sharded, with_ranks
from haversack_server.worker import prepare, spread, unsharded
from haversack_server.worker.collectives import Collectives
from haversack_server.worker.environment import environment
from haversack_server.worker.errors import JobEnded, outcome_of, while_building
from haversack_server.worker.fork import run_forked
from haversack_server.worker.leaves import find_leaves
from haversack_server.worker.probes import OF_RANKS
from haversack_server.worker.ranks import RankLostError, run_ranks
from haversack_server.worker.run import Ready, RunPlan, perform

PLAIN, AGAIN, CHECKPOINTED = "sharded plain", "sharded plain again", "sharded checkpointed"
WATCHED_PLAIN, WATCHED = "sharded plain under probes", "sharded checkpointed under probes"
_USUAL_DEADLINE_S = 300.0
_LONGEST_WAIT_S = 60.0


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
        failure = reports.raised_in_both(outcomes)
        if failure is not None:
            return reports.failed(report, failure)
        where = environment(self.request, outcomes.plain.device_name, isolation)
        compared = reports.compared(
            report, self.request, outcomes, environment=where, pinned=self._pinned()
        )
        # Ranks have fewer probes, and these say so themselves.
        said = assumptions(replace(outcomes, watched=None), by_plan=self.request.plan is not None)
        compared = replace(compared, assumptions=said)
        model = spread.check_spreadable(self.workloads[0])
        found = sharded(runs, self.world, where.backend, spread.units_of(model, self.world))
        return with_ranks(compared, found, notes=self.notes, strict=self.request.strict)

    def _pinned(self) -> tuple[str, ...]:
        seeds = f"Rank r has seed {self.request.seed} + r, and the parameters of rank 0"
        return (*prepare.pinned(self.request), seeds)

    def _build(self) -> None:
        with while_building():
            for rank in range(self.world.size):
                request = unsharded.of_rank(self.request, rank)
                workload, notes = prepare.prepare(self.load(request.seed), request)
                spread.check_spreadable(workload)
                if rank:
                    unsharded.take_parameters(workload, self.workloads[0])
                else:
                    self.notes += notes
                self.workloads.append(workload)
        self.notes.append(self._inputs())
        self.notes.append(
            "Memory, collectives and random sources of ranks come from further runs under probes; "
            "ranks are not traced: the same workload on one process names the place of a difference"
        )
        self._tell("build")

    def _inputs(self) -> str:
        if unsharded.have_equal_inputs(self.workloads):
            return (
                "The factory makes the same inputs with every seed, so all ranks have the same: "
                "gradients that are not reduced would not be seen"
            )
        return "Every rank has inputs of its own, which the factory made with its seed"

    def _unsharded(self) -> None:
        for rank in range(self.world.size):
            outcome = self._of_one_process(rank)
            self._end_if(reports.failure_of(outcome))
            if outcome.raised is not None and self.compares:
                self.compares = False
                self.notes.append(
                    "Nothing is compared with one process: there the plain run of rank "
                    f"{rank} raises, in {outcome.raised.part}: {outcome.raised}"
                )
        self._tell(unsharded.STAGE)

    def _of_one_process(self, rank: int) -> Outcome:
        file = self._file("unsharded")
        stage = unsharded.STAGE

        def work() -> Outcome:
            try:
                return unsharded.run_unsharded(self.workloads[rank], rank, self.request, file)
            except Exception as error:  # what keeps it from being run is its outcome
                return outcome_of(stage, error)

        found = run_forked(lambda: records.to_json(work()))
        if isinstance(found, int):
            return Outcome(stage=stage, exit_status=found)
        return records.from_json(Outcome, found)

    def _runs(self) -> RankRuns:
        plain = self._run(PLAIN, first=True)
        wrapped = plain[0].outcome.wrapped
        again = self._run(AGAIN, wrapped=wrapped)
        checkpointed = self._run(CHECKPOINTED, checkpointed=True, wrapped=wrapped)
        runs = RankRuns(plain=plain, again=again, checkpointed=checkpointed)
        if any(rank.outcome.raised for run in (plain, again, checkpointed) for rank in run):
            return runs
        settings: dict[str, Any] = {"probes": OF_RANKS, "decides": False, "wrapped": wrapped}
        return replace(
            runs,
            watched_plain=self._run(WATCHED_PLAIN, **settings),
            watched=self._run(WATCHED, checkpointed=True, **settings),
        )

    def _run(self, stage: str, **settings: Any) -> list[RankOutcome]:
        plan = RunPlan(stage=stage, values_file=self._file("values"), **settings)
        try:
            frames = run_ranks(
                self.world.size,
                lambda rank: records.to_json(self._rank(rank, plan)),
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

    def _rank(self, rank: int, plan: RunPlan) -> RankOutcome:
        try:
            spread.join(self._file(plan.stage), rank, self.world.size, "cpu", self._patience_s())
            return self._performed(rank, plan)
        except spread.UnreachableError as lost:
            return RankOutcome(rank=rank, outcome=Outcome(stage=plan.stage), unreachable=str(lost))
        except Exception as error:  # what keeps it from being run is its outcome
            return RankOutcome(rank=rank, outcome=outcome_of(plan.stage, error))

    def _performed(self, rank: int, plan: RunPlan) -> RankOutcome:
        workload = self.workloads[rank]
        model = spread.check_spreadable(workload)
        leaves = find_leaves(workload)
        whole = spread.spread(workload, self.world, "cpu")
        ready = Ready(workload, (), spread.of_shards(leaves, model), whole)
        plan = replace(plan, values_file=f"{plan.values_file}.{rank}")
        with Collectives() as collectives:
            outcome = perform(plan, unsharded.of_rank(self.request, rank), ready)
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
        values = torch.load(plan.values_file, weights_only=True)
        gradients = spread.whole_gradients(model)
        rows, counts = unsharded.against_unsharded(
            rank, self.world.size, values, gradients, self._file("unsharded")
        )
        spread.met()
        return replace(found, against=tuple(rows), against_counts=counts)

    def _patience_s(self) -> float:
        deadline_ns = self.request.limits.deadline_ns
        deadline_s = deadline_ns / 1e9 if deadline_ns is not None else _USUAL_DEADLINE_S
        return min(_LONGEST_WAIT_S, deadline_s / 4)

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
