"""A device that fails, in a step or only when it is waited for; no device takes part."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="runs are torch's")

from haversack.torch import Workload  # noqa: E402
from haversack.verify import FailureReason, VerifySchedule  # noqa: E402
from haversack_server.verify import reports  # noqa: E402
from haversack_server.verify.outcome import Outcome  # noqa: E402
from haversack_server.worker.errors import outcome_of  # noqa: E402
from haversack_server.worker.run import _finish  # noqa: E402
from haversack_server.worker.step import Step  # noqa: E402

FAULT = "CUDA error: device-side assert triggered"


class Waiting:
    """In place of a probe of memory, which waits for the device at the end of a step."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def finish(self) -> None:
        if self._error is not None:
            raise self._error


def stepped(model: Any, waiting: Exception | None) -> Step:
    step = Step(Workload(model, ()), VerifySchedule.ONE_MICROBATCH)
    step.run()
    memory: Any = Waiting(waiting)
    _finish(step, memory)
    return step


def raising(error: Exception) -> Any:
    def model() -> Any:
        raise error

    return model


def ones() -> Any:
    return torch.ones((), requires_grad=True)


def test_a_fault_that_shows_only_in_the_wait_is_the_step_s_own() -> None:
    raised = stepped(ones, RuntimeError(FAULT)).raised
    assert raised is not None
    assert (raised.part, raised.device_fault) == ("the wait for the device", True)


def test_the_part_that_a_fault_came_from_stays_named_when_the_wait_fails_too() -> None:
    raised = stepped(raising(RuntimeError(FAULT)), RuntimeError(FAULT)).raised
    assert raised is not None
    assert (raised.part, raised.device_fault) == ("forward", True)


def test_an_exception_before_a_fault_does_not_hide_it() -> None:
    raised = stepped(raising(ValueError("odd")), RuntimeError(FAULT)).raised
    assert raised is not None
    assert raised.device_fault


def test_a_device_that_answers_after_an_error_has_not_failed() -> None:
    refused = RuntimeError("CUDA error: invalid configuration argument")
    raised = stepped(raising(refused), None).raised
    assert raised is not None
    assert (raised.part, raised.device_fault) == ("forward", False)


def test_what_is_no_fault_of_a_device_is_raised_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="another"):
        stepped(ones, RuntimeError("another"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(FAULT), FailureReason.DEVICE_FAULT),
        (AssertionError("Torch not compiled with CUDA enabled"), FailureReason.DEVICE_FAULT),
        (torch.AcceleratorError("unspecified launch failure"), FailureReason.DEVICE_FAULT),
        (RuntimeError("CUDA driver error: invalid argument"), FailureReason.DEVICE_FAULT),
        (RuntimeError("The NVIDIA driver on your system is too old"), FailureReason.DEVICE_FAULT),
        (torch.cuda.DeferredCudaCallError("no capability"), FailureReason.DEVICE_FAULT),
        (
            RuntimeError("Cannot re-initialize CUDA in forked subprocess"),
            FailureReason.DEVICE_FAULT,
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), FailureReason.OUT_OF_MEMORY),
        (torch.AcceleratorError("CUDA error: out of memory"), FailureReason.OUT_OF_MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            FailureReason.OUT_OF_MEMORY,
        ),
    ],
)
def test_a_gpu_that_fails_before_the_step_ends_the_job_with_its_reason(
    error: Exception, reason: FailureReason
) -> None:
    outcome: Outcome = outcome_of("plain", error)
    failure = reports.failure_of(outcome)
    assert failure is not None
    assert (failure.reason, failure.stage) == (reason, "plain")
    assert "preparation" in failure.message
    with pytest.raises(KeyError):
        outcome_of("plain", KeyError("ours"))
