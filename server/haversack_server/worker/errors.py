"""Faults of a workload, which end its job with a typed reason."""

import contextlib
from collections.abc import Iterator

import torch

from haversack.verify import FailureReason, VerifyFailure
from haversack_server.verify.outcome import Outcome, Raised


class JobEnded(Exception):  # noqa: N818 - it ends a job, and is never seen outside
    """The job ends here, with a failure as its report."""

    def __init__(self, failure: VerifyFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class BadWorkloadError(Exception):
    """The factory cannot be found or called, or what it returns cannot be run."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text
    )


def is_device_fault(error: BaseException) -> bool:
    """Whether an error says that the device failed, after which its process can do nothing."""
    return isinstance(error, RuntimeError) and "cuda error" in str(error).lower()


@contextlib.contextmanager
def while_building() -> Iterator[None]:
    """Turn what goes wrong while a workload is built into the end of its job."""
    try:
        yield
    except BadWorkloadError as wrong:
        raise JobEnded(_failure(FailureReason.BAD_WORKLOAD, str(wrong))) from wrong
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        said = f": {error}" if str(error) else ""  # Python's own MemoryError says nothing
        message = f"Building the workload asked for more memory than there is{said}"
        raise JobEnded(_failure(FailureReason.OUT_OF_MEMORY, message)) from error


def _failure(reason: FailureReason, message: str) -> VerifyFailure:
    return VerifyFailure(reason=reason, message=message, stage="build")


def raised_in(part: str, error: BaseException) -> Raised:
    """Keep an exception of a workload as the outcome of a run."""
    return Raised(
        part=part,
        kind=type(error).__name__,
        message=str(error)[:2000],
        out_of_memory=is_out_of_memory(error),
        device_fault=is_device_fault(error),
    )


def outcome_of(stage: str, error: Exception) -> Outcome:
    """Give the outcome of a stage that could not be run; a fault of ours is raised again."""
    if isinstance(error, BadWorkloadError):
        return Outcome(stage=stage, bad_workload=str(error))
    if not is_out_of_memory(error) and not is_device_fault(error):
        raise error
    return Outcome(stage=stage, raised=raised_in("preparation", error))
