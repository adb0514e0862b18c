"""What one rank of a resume job does: train, save and end; or begin anew, read, and go on.

Three kinds of run. Each begins with what the factory made, as a restart does: the weights of the
first step, new optimizer, schedule and data, and the seed of the job. Knows nothing of processes.
"""

import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from haversack.checks import shortly
from haversack.torch import TrainingRun, TrainingWorkload, Workload
from haversack.verify import Facet, TrainingCheckpoint, VerifyRequest, VerifyWorld
from haversack_server.verify.comparison import Row
from haversack_server.verify.resumable import Resume
from haversack_server.verify.resume_outcome import ResumeRank
from haversack_server.verify.resume_random import SourceRead
from haversack_server.worker import (
    compare,
    prepare,
    resume_random,
    rng,
    spread,
    training_files,
    unsharded,
)
from haversack_server.worker import training_state as states
from haversack_server.worker.errors import BadWorkloadError, raised_in
from haversack_server.worker.fork import print_fault
from haversack_server.worker.values import Values

UNINTERRUPTED, AGAIN = "uninterrupted", "uninterrupted again"
SAVED, RESUMED = "saved", "resumed"
WITHOUT = "without a stop"
_NEXT = Facet.NEXT_STEPS.name


def _rows(
    facets: Sequence[Facet], expected: Mapping[str, Values], own: Mapping[str, Values], where: str
) -> list[Row]:
    return [row for f in facets for row in compare.rows(f, expected[f.name], own[f.name], where)]


def ranks_of(stage: str, resume: Resume) -> int:
    """Count the ranks of a run."""
    return resume.resumed_size if stage in (AGAIN, RESUMED) else resume.saved_size


@dataclass(slots=True)
class ResumeRankWork:
    """One rank of one run; ``patience_s`` is how long it waits for the others.

    ``left_out`` is a kind of state that a resumed run is not given of what the files hold.
    """

    training: TrainingWorkload
    request: VerifyRequest
    resume: Resume
    folder: pathlib.Path
    rank: int
    patience_s: float
    left_out: Facet | None = None
    part: str = "preparation"

    def do(self, stage: str) -> ResumeRank:
        """Run a stage; whatever the training raises is part of the outcome."""
        size = ranks_of(stage, self.resume)
        try:
            spread.join(self._meeting(stage), self.rank, size, "cpu", self.patience_s)
            found = self._found(stage, self._begun(size))
        except spread.UnreachableError as lost:
            return ResumeRank(rank=self.rank, unreachable=str(lost))
        except BadWorkloadError as wrong:
            return ResumeRank(rank=self.rank, bad_workload=str(wrong))
        except BaseException as error:  # whatever user code raises, SystemExit too, is its outcome
            print_fault()
            raised = raised_in(self.part, error)
            return ResumeRank(rank=self.rank, raised=raised, ended_ns=time.monotonic_ns())
        spread.met()  # a rank that leaves early would take what it sent with it
        return found

    def _found(self, stage: str, run: TrainingRun) -> ResumeRank:
        if stage == RESUMED:
            return self._resumed(run)
        begun = resume_random.states_now()
        self._take_first_steps(run)
        if stage != SAVED:
            return self._uninterrupted(run, stage)
        turns = {"begun": begun, "saved": resume_random.states_now()}
        torch.save(turns, self._file(f"random.{self.rank}"))
        return self._saved(run)

    def _begun(self, size: int) -> TrainingRun:
        training = self.training
        self.part = "preparation"
        world = VerifyWorld(size=size, sharding=self.resume.sharding)
        way = spread.default_way(training.model, world)
        model = spread.spread(Workload(training.model), way, "cpu").model
        self.part = "optimizer"
        optimizer = training.optimizer(training.model)
        self.part = "scheduler"
        scheduler = None if training.scheduler is None else training.scheduler(optimizer)
        prepare.pin(unsharded.of_rank(self.request, self.rank))
        full = self.resume.saved_as is TrainingCheckpoint.FULL
        return TrainingRun(training, model, optimizer, scheduler, self.rank, size, full)

    def _uninterrupted(self, run: TrainingRun, stage: str) -> ResumeRank:
        found, following = self._next_steps(run)
        if stage == AGAIN:
            torch.save(resume_random.states_now(), self._file(f"random again.{self.rank}"))
        if self.rank:
            return found
        if stage == UNINTERRUPTED:
            torch.save(following, self._file("next"))
            return found
        rows = compare.rows(Facet.NEXT_STEPS, self._read("next"), following, WITHOUT)
        return replace(found, rows=tuple(rows))

    def _saved(self, run: TrainingRun) -> ResumeRank:
        self.part = "state"
        own = states.state_of(run)
        if self.rank:
            own |= {facet.name: {} for facet in states.GATHERED}
        torch.save(own, self._file(f"saved.{self.rank}"))
        self.part = "save"
        training_files.write(self._to_keep(run), self._checkpoint)
        self.part = "state"
        after = states.state_of(run)
        names = training_files.names_in(self._checkpoint)
        return ResumeRank(
            rank=self.rank,
            rows=tuple(_rows(self._facets, own, after, "before it was saved")),
            checkpoint_bytes=training_files.bytes_of(self._checkpoint),
            kept=tuple(sorted({name.partition(".")[0] for name in names})),
        )

    def _resumed(self, run: TrainingRun) -> ResumeRank:
        self.part = "save"
        state = self._to_keep(run)
        self.part = "restore"
        before = resume_random.states_now()
        missing = training_files.read(state, self._checkpoint)
        left_out = training_files.leave_out(state, self.left_out, self.training.model)
        (self.training.restore or TrainingRun.load_state_dict)(run, state)
        after = resume_random.states_now()
        self.part = "state"
        own = states.state_of(run)
        found, following = self._next_steps(run)
        turns = resume_random.Turns(before, after, resume_random.states_now())
        rows, between = self._against_saved(own)
        counts = {facet.name: len(own[facet.name]) for facet in self._facets}
        if self.rank == 0:
            rows += compare.rows(Facet.NEXT_STEPS, self._read("next"), following, WITHOUT)
            counts[_NEXT] = len(following)
        return replace(
            found,
            rows=tuple(rows),
            between_ranks=tuple(between),
            counts=counts,
            missing=missing,
            left_out=left_out,
            random=self._random(turns),
        )

    def _random(self, turns: resume_random.Turns) -> tuple[SourceRead, ...]:
        """Say what became of generators; on as many ranks their states are compared as they are."""
        if self.resume.same_ranks:
            return ()
        saved = [self._read(f"random.{rank}") for rank in range(self.resume.saved_size)]
        return resume_random.reads(self.rank, turns, saved, self._read(f"random again.{self.rank}"))

    def _against_saved(self, own: dict[str, Values]) -> tuple[list[Row], list[Row]]:
        """Compare with the rank that saved, and the ranks that saved among each other.

        On another number of ranks there is no rank that saved for each: they are taken in turn.
        """
        size = self.resume.saved_size
        expected = self._read(f"saved.{self.rank % size}")
        rows = _rows(self._facets, expected, own, "when it was saved")
        if self.rank or self.resume.same_ranks:
            return rows, []
        others = [self._read(f"saved.{other}") for other in range(1, size)]
        of_each = states.facets_of(1, self.resume.sharding)
        return rows, [
            row for other in others for row in _rows(of_each, expected, other, "on rank 0")
        ]

    def _take_first_steps(self, run: TrainingRun) -> None:
        for step in range(1, self.resume.steps_before + 1):
            self.part = f"step {step}"
            run.step()

    def _next_steps(self, run: TrainingRun) -> tuple[ResumeRank, Values]:
        """Take the steps after the stop; give what can be seen of them, the same on every rank."""
        before = rng.default_states()
        resume, found, losses = self.resume, Values(), list[float]()
        last = resume.steps_before + resume.steps_after
        for step in range(resume.steps_before + 1, last + 1):
            self.part = f"step {step}"
            batch, loss = run.step()
            mean = states.mean_over_ranks(loss)
            losses.append(float(mean))
            name = f"step {step:0{len(str(last))}}"
            found[f"{name} batch"] = states.global_batch(batch)
            found[f"{name} learning rates afterwards"] = states.learning_rates(run)
            found[f"{name} loss"] = mean
        draws = rng.default_states() != before
        for name, parameter in run.training.model.named_parameters():
            found[f"weights after step {last}: {name}"] = states.whole(parameter)
        return ResumeRank(rank=self.rank, losses=tuple(losses), draws=draws), found

    def _to_keep(self, run: TrainingRun) -> dict[str, Any]:
        save = self.training.save or TrainingRun.state_dict
        state = save(run)
        if not isinstance(state, dict):
            raise BadWorkloadError(f"save gives a {type(state).__name__}; a dict would do")
        for key in state:
            if not isinstance(key, str):
                raise BadWorkloadError(f"save gives the key {shortly(key)}; a text would do")
        return state

    @property
    def _facets(self) -> tuple[Facet, ...]:
        return states.facets_of(self.rank, self.resume.sharding)

    @property
    def _checkpoint(self) -> pathlib.Path:
        return self.folder / "training-checkpoint"

    def _read(self, name: str) -> Any:
        return torch.load(self._file(name), weights_only=True)

    def _meeting(self, stage: str) -> str:
        without = f" without {self.left_out.name}" if self.left_out else ""
        return self._file(f"meeting {stage}{without}")

    def _file(self, name: str) -> str:
        return str(self.folder / f"{name.replace(' ', '-')}.resume")
