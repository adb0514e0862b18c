"""A resume job: training on all ranks, stopped, saved to disk and gone on with.

What is on disk is a training checkpoint, not an activation checkpoint. Every run is ranks forked
from the job, so that each begins with what the factory made, as a restart does. Loads
torch.distributed, which takes seconds.
"""

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from haversack.torch import TrainingWorkload
from haversack.verify import (
    Facet,
    FailureReason,
    VerifyFailure,
    VerifyProgress,
    VerifyReport,
    VerifyRequest,
)
from haversack_server.verify import records, reports, resume_report
from haversack_server.verify.resumable import Resume
from haversack_server.verify.resume_outcome import ResumeRank, ResumeRuns, first_raised
from haversack_server.worker import training_files
from haversack_server.worker.environment import device_name, environment
from haversack_server.worker.errors import BadWorkloadError, JobEnded, while_building
from haversack_server.worker.ranks import RankLostError, patience_s, run_ranks
from haversack_server.worker.resume_rank import (
    AGAIN,
    RESUMED,
    SAVED,
    UNINTERRUPTED,
    ResumeRankWork,
    ranks_of,
)


@dataclass(slots=True)
class ResumeJob:
    """Runs a request to resume; ``load`` builds the training with the job's seed."""

    request: VerifyRequest
    resume: Resume
    load: Callable[[], TrainingWorkload]
    folder: pathlib.Path
    tell: Callable[[VerifyProgress], None]
    training: TrainingWorkload | None = None
    told: list[str] = field(default_factory=list)
    kinds: tuple[Facet, ...] = ()

    def report(self, report: VerifyReport, isolation: Sequence[str]) -> VerifyReport:
        """Give the report, whatever happens to ranks."""
        try:
            with while_building():
                self.training = _checked(self.load())
            self._tell("build")
            runs = self._runs()
        except JobEnded as ended:
            return reports.failed(report, ended.failure)
        name = device_name(torch.device("cpu"))
        where = environment(self.request, name, isolation)
        return resume_report.resumed(report, self.request, self.resume, runs, environment=where)

    def _runs(self) -> ResumeRuns:
        uninterrupted, again = self._run(UNINTERRUPTED), self._run(AGAIN)
        saved = self._run(SAVED)
        self.kinds = self._left_out(saved[0].kept)
        resumed = self._run(RESUMED)
        runs = ResumeRuns(uninterrupted=uninterrupted, again=again, saved=saved, resumed=resumed)
        if first_raised(runs.resumed) is not None:
            return runs
        return replace(runs, without={kind: self._run(RESUMED, kind) for kind in self.kinds})

    def _left_out(self, kept: Sequence[str]) -> tuple[Facet, ...]:
        """Name the kinds to leave out in turn: those that files hold, and no other."""
        if not self.resume.leave_out_each or self.training is None:
            return ()
        return training_files.kinds_in(kept, self.training.model)

    def _run(self, stage: str, left_out: Facet | None = None) -> tuple[ResumeRank, ...]:
        try:
            frames = run_ranks(
                ranks_of(stage, self.resume),
                lambda rank: records.to_json(self._work(rank, left_out).do(stage)),
                patience_s=self._patience_s(),
            )
        except RankLostError as lost:
            message = f"{lost} in the {stage} run"
            raise JobEnded(_failure(stage, message, exit_status=lost.exit_status)) from lost
        ranks = tuple(records.from_json(ResumeRank, frames[rank]) for rank in sorted(frames))
        failure = resume_report.failure_of(stage, ranks, decides=stage != RESUMED)
        if failure is not None:
            raise JobEnded(failure)
        self._tell(f"{stage} without {left_out.name.lower()}" if left_out else stage)
        return ranks

    def _work(self, rank: int, left_out: Facet | None) -> ResumeRankWork:
        assert self.training is not None
        return ResumeRankWork(
            self.training,
            self.request,
            self.resume,
            self.folder,
            rank,
            self._patience_s(),
            left_out,
        )

    def _patience_s(self) -> float:
        return patience_s(self.request.limits.deadline_ns)

    def _tell(self, stage: str) -> None:
        self.told.append(stage)
        total = 5 + len(self.kinds)
        self.tell(VerifyProgress(stage=stage, completed=len(self.told), total=total))


def _checked(training: TrainingWorkload) -> TrainingWorkload:
    model: object = training.model
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise BadWorkloadError(f"a resume job trains a module, but the model is a {kind}")
    return training


def _failure(stage: str, message: str, *, exit_status: int | None = None) -> VerifyFailure:
    return VerifyFailure(
        reason=FailureReason.RANK_LOST, message=message, exit_status=exit_status, stage=stage
    )
