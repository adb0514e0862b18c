"""One job: build the workload, run it plain, plain again and checkpointed, and report.

Each run is a process forked from the job, so that all start from the same memory: models, closures
and globals alike. Where a GPU is used every run builds the workload itself, since a process that
touched the GPU cannot be forked.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from haversack.torch import Workload
from haversack.verify import (
    FailureReason,
    VerifyFailure,
    VerifyProgress,
    VerifyReport,
    VerifyRequest,
)
from haversack_server.verify import frames, records, reports
from haversack_server.verify.findings import Outcomes, is_unexplained
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.worker.environment import environment
from haversack_server.worker.errors import BadWorkloadError, is_out_of_memory
from haversack_server.worker.fork import run_forked
from haversack_server.worker.load import load
from haversack_server.worker.prepare import pin, pinned
from haversack_server.worker.run import RunPlan, perform

PLAIN, AGAIN, CHECKPOINTED = "plain", "plain again", "checkpointed"
WATCHED_PLAIN, WATCHED, CONTROL = "plain under probes", "checkpointed under probes", "control"
TRACED = "traced"


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What the server asks of a job's process."""

    job_id: str
    request: VerifyRequest
    allow: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    values_file: str
    isolation: tuple[str, ...] = ()


def serve(channel: socket.socket, isolation: Sequence[str]) -> None:
    """Take an order, run it, send its events and its report."""
    message = frames.receive(channel)
    if message is None:
        return  # the server went away
    order = replace(records.from_json(Order, message), isolation=tuple(isolation))
    report = _Job(order, channel).report()
    frames.send(channel, {"report": records.to_json(report)})


class _Ended(Exception):  # noqa: N818 - it ends a job, and is never seen outside
    """The job ends here, with a failure as its report."""

    def __init__(self, failure: VerifyFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True)
class _Job:
    order: Order
    channel: socket.socket
    workload: Workload | None = None
    completed: int = 0
    total: int = 6

    def report(self) -> VerifyReport:
        order = self.order
        report = reports.blank(order.request, order.job_id)
        try:
            self._build()
            runs = self._runs()
        except _Ended as ended:
            return reports.failed(report, ended.failure)
        failure = reports.raised_in_both(runs)
        if failure is not None:
            return reports.failed(report, failure)
        return reports.compared(
            report,
            order.request,
            runs,
            environment=environment(order.request, runs.plain.device_name, order.isolation),
            pinned=pinned(order.request),
        )

    def _build(self) -> None:
        if self._on_gpu():
            self.total -= 1
            return
        try:
            self.workload = self._load()
        except BadWorkloadError as wrong:
            raise _Ended(_failure(FailureReason.BAD_WORKLOAD, str(wrong))) from wrong
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            message = f"Building the workload asked for more memory than there is: {error}"
            raise _Ended(_failure(FailureReason.OUT_OF_MEMORY, message)) from error
        self.total += self.workload.between_forward_and_backward is not None
        self._tell("build")

    def _load(self) -> Workload:
        order = self.order
        pin(order.request)
        torch.set_num_threads(1)  # a pool of threads would not live on in forked runs
        return load(order.request.workload, allow=order.allow, path=order.path)

    def _on_gpu(self) -> bool:
        return self.order.request.device.startswith("cuda")

    def _runs(self) -> Outcomes:
        plain = self._run(PLAIN, first=True)
        wrapped = plain.wrapped
        again = self._run(AGAIN, wrapped=wrapped)
        checkpointed = self._run(CHECKPOINTED, checkpointed=True, wrapped=wrapped)
        runs = Outcomes(plain=plain, again=again, checkpointed=checkpointed)
        if not (plain.raised or again.raised or checkpointed.raised):
            runs = replace(
                runs,
                watched_plain=self._run(WATCHED_PLAIN, watched=True, wrapped=wrapped),
                watched=self._run(WATCHED, watched=True, checkpointed=True, wrapped=wrapped),
                control=self._control(wrapped),
            )
        if is_unexplained(runs):
            self.total += 1
            runs = replace(
                runs, traced=self._run(TRACED, traced=True, checkpointed=True, wrapped=wrapped)
            )
        return runs

    def _control(self, wrapped: tuple[str, ...]) -> Outcome | None:
        if self.workload is None or self.workload.between_forward_and_backward is None:
            return None
        return self._run(CONTROL, with_callback=False, wrapped=wrapped)

    def _run(self, stage: str, **settings: Any) -> Outcome:
        plan = RunPlan(stage=stage, values_file=self.order.values_file, **settings)
        found = run_forked(lambda: records.to_json(self._perform(plan)))
        if isinstance(found, int):
            outcome = Outcome(stage=stage, exit_status=found)
        else:
            outcome = records.from_json(Outcome, found)
        failure = reports.failure_of(outcome)
        if failure is not None:
            raise _Ended(failure)
        self._tell(stage)
        return outcome

    def _perform(self, plan: RunPlan) -> Outcome:
        try:
            return perform(plan, self.order.request, self.workload or self._load())
        except BadWorkloadError as wrong:
            return Outcome(stage=plan.stage, bad_workload=str(wrong))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raised = Raised(
                part="preparation", kind=type(error).__name__, message="", out_of_memory=True
            )
            return Outcome(stage=plan.stage, raised=raised)

    def _tell(self, stage: str) -> None:
        self.completed += 1
        progress = VerifyProgress(stage=stage, completed=self.completed, total=self.total)
        frames.send(self.channel, {"progress": records.to_json(progress)})


def _failure(reason: FailureReason, message: str) -> VerifyFailure:
    return VerifyFailure(reason=reason, message=message, stage="build")
