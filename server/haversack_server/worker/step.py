"""One step of a workload: forward, loss, callback, backward, in the order of a schedule.

Says which loss was taken and in which part the workload raised. Knows nothing of regions, probes
or other runs.
"""

import functools
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from haversack.torch import Workload
from haversack.verify import VerifySchedule
from haversack_server.verify.outcome import Raised
from haversack_server.worker.compare import flatten
from haversack_server.worker.errors import BadWorkloadError, is_device_fault, is_out_of_memory

_HALF = (torch.float16, torch.bfloat16)


@dataclass(slots=True)
class Step:
    """Runs a workload once; afterwards says what came of it."""

    workload: Workload
    schedule: VerifySchedule
    with_callback: bool = True
    before_backward: Callable[[], object] = lambda: None
    outputs: list[Any] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    loss_said: str = ""
    raised: Raised | None = None
    _part: str = ""

    def run(self) -> None:
        """Run the step; an exception of the workload is kept in ``raised``."""
        try:
            self._microbatches()
        except BadWorkloadError:
            raise
        except BaseException as error:  # whatever user code raises, SystemExit too, is its outcome
            traceback.print_exc()
            self.raised = Raised(
                part=self._part,
                kind=type(error).__name__,
                message=str(error)[:2000],
                out_of_memory=is_out_of_memory(error),
                device_fault=is_device_fault(error),
            )

    def _microbatches(self) -> None:
        self._forward()
        if self.schedule is VerifySchedule.TWO_MICROBATCHES:
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
        loss, self.loss_said = loss_of(workload, self.outputs[-1])
        self.losses.append(loss)

    def _backward(self, losses: Sequence[torch.Tensor]) -> None:
        self.before_backward()
        callback = self.workload.between_forward_and_backward
        if callback is not None and self.with_callback:
            self._part = "between_forward_and_backward"
            callback()
        self._part = "backward"
        in_thread = self.schedule is VerifySchedule.BACKWARD_IN_THREAD
        for loss in losses:
            _in_helper_thread(loss) if in_thread else torch.autograd.backward(loss)

    def _optimizer_step(self) -> None:
        if self.workload.optimizer is not None:
            self._part = "optimizer step"
            self.workload.optimizer.step()
            self.workload.optimizer.zero_grad()


def _in_helper_thread(loss: torch.Tensor) -> None:
    caught: list[BaseException] = []

    def guarded() -> None:
        try:
            torch.autograd.backward(loss)
        except BaseException as error:  # raised again in the thread that waits
            caught.append(error)

    helper = threading.Thread(target=guarded, name="backward")
    helper.start()
    helper.join()
    if caught:
        raise caught[0]


def loss_of(workload: Workload, output: Any) -> tuple[torch.Tensor, str]:
    """Turn an output into a scalar tensor, and say how in words."""
    if workload.loss is not None:
        return _scalar(workload.loss(output)), "The workload's own loss was taken"
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return _scalar(own), "The loss of the output was taken"
    if isinstance(output, torch.Tensor) and _is_floating(output) and output.numel() == 1:
        return _scalar(output), "The output is a scalar and was taken as the loss"
    floating: list[Any] = [each for each in flatten(output, "").values() if _is_floating(each)]
    if not floating:
        raise BadWorkloadError("the model returns no floating tensor, so there is no loss to take")
    total = functools.reduce(torch.add, map(_sum, floating))
    return total, f"The sum of the output's {len(floating)} floating tensor(s) was the loss"


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    # In single precision: a sum in half precision soon is infinite.
    return tensor.sum(dtype=torch.float32 if tensor.dtype in _HALF else None)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _scalar(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise BadWorkloadError(f"the loss is {_word(loss)}, not a scalar tensor")
    return loss if loss.dim() == 0 else loss.sum()


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
