"""One step of a workload: forward, loss, callback, backward, in the order of a schedule.

Says which loss was taken and in which part the workload raised. Knows nothing of regions, probes
or other runs.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from haversack.errors import InvalidRequestError
from haversack.torch import Workload, loss
from haversack.torch.loss import TakenLoss
from haversack.verify import VerifySchedule
from haversack_server.verify.outcome import Raised
from haversack_server.worker.accumulation import Accumulation, Unreduced
from haversack_server.worker.errors import BadWorkloadError, StepEnded, raised_in
from haversack_server.worker.fork import print_fault
from haversack_server.worker.taken_gradients import TakenGradients
from haversack_server.worker.values import flatten


@dataclass(slots=True)
class Step:
    """Runs a workload once; afterwards says what came of it.

    ``before_optimizer`` is called between the first backward and the optimizer's step, and
    ``around_optimizer`` gives a context for that step. ``taken`` are gradients that hooks have
    taken away. Each loss is multiplied by ``factor`` where its backward begins.
    """

    workload: Workload
    schedule: VerifySchedule
    with_callback: bool = True
    before_backward: Callable[[], object] = lambda: None
    before_optimizer: Callable[[], object] = lambda: None
    around_optimizer: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    factor: float = 1.0
    accumulation: Accumulation = field(default_factory=Unreduced)
    taken: TakenGradients = field(default_factory=lambda: TakenGradients({}))
    outputs: list[Any] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    loss_said: str = ""
    raised: Raised | None = None
    _part: str = ""

    def run(self) -> None:
        """Run the step; an exception of the workload is kept in ``raised``."""
        try:
            with contextlib.suppress(StepEnded):
                self._microbatches()
        except BadWorkloadError:
            raise
        except BaseException as error:  # whatever user code raises, SystemExit too, is its outcome
            print_fault()
            self.raised = raised_in(self._part, error)

    def _microbatches(self) -> None:
        if self.schedule is VerifySchedule.TWO_MICROBATCHES:
            with self.accumulation.forwards():
                self._forward()
                self._forward()
        else:
            self._forward()
        self._backward(self.losses)
        if self.schedule is VerifySchedule.TWO_STEPS:
            self._optimizer_step()
            self._forward()
            self._backward(self.losses[1:])

    def _forward(self) -> None:
        workload = self.workload
        self._part = "forward"
        self.outputs.append(workload.model(*workload.args, **workload.kwargs))
        self._part = "loss"
        taken = loss_of(workload, self.outputs[-1])
        self.loss_said = taken.said
        self.losses.append(taken.tensor)

    def _backward(self, losses: Sequence[torch.Tensor]) -> None:
        self.before_backward()
        callback = self.workload.between_forward_and_backward
        if callback is not None and self.with_callback:
            self._part = "between_forward_and_backward"
            callback()
        self._part = "backward"
        in_thread = self.schedule is VerifySchedule.BACKWARD_IN_THREAD
        for each in losses:
            if each is losses[-1] and len(losses) > 1:
                self.accumulation.before_last_backward()
            start = None if self.factor == 1 else torch.full_like(each, self.factor)
            _in_helper_thread(each, start) if in_thread else torch.autograd.backward(each, start)

    def _optimizer_step(self) -> None:
        if self.workload.optimizer is not None:
            self._part = "optimizer step"
            self.before_optimizer()
            with self.around_optimizer():
                self.workload.optimizer.step()
            self.workload.optimizer.zero_grad()


def _in_helper_thread(tensor: torch.Tensor, start: torch.Tensor | None) -> None:
    caught: list[BaseException] = []

    def guarded() -> None:
        try:
            torch.autograd.backward(tensor, start)
        except BaseException as error:  # raised again in the thread that waits
            caught.append(error)

    helper = threading.Thread(target=guarded, name="backward")
    helper.start()
    helper.join()
    if caught:
        raise caught[0]


def loss_of(workload: Workload, output: Any) -> TakenLoss:
    """Take the loss as ``haversack.torch`` does; one that cannot be taken is a bad workload."""
    try:
        return loss.loss_of(workload, output, lambda whole: flatten(whole, "").values())
    except InvalidRequestError as error:
        raise BadWorkloadError(error.violations[0].description) from error
