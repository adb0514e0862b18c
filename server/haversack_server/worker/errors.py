"""Faults of a workload, which end its job with a typed reason."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from haversack.verify import FailureReason, VerifyFailure
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.worker.fork import print_fault

# Of torch/cuda/__init__.py and c10/cuda/CUDAFunctions.cpp.
_NO_DEVICE = (
    "torch not compiled with cuda",
    "no nvidia driver",
    "nvidia driver on your system is too old",
    "no cuda gpus are available",
    "cuda driver initialization failed",
    "cuda unknown error",
    "unexpected error from cudagetdevicecount",
)
# Of torch/cuda/__init__.py, torch/csrc/autograd/engine.cpp, and the driver itself.
_NOT_AFTER_A_FORK = (
    "re-initialize cuda in forked subprocess",
    "in combination with fork-based multiprocessing",
    "cuda error: initialization error",
)
# What CUDA's libraries say of memory that they wanted for themselves.
_NO_MEMORY = ("can't allocate memory", "out of memory", "_status_alloc_failed")


class JobEnded(Exception):  # noqa: N818 - it ends a job, and is never seen outside
    """The job ends here, with a failure as its report."""

    def __init__(self, failure: VerifyFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class StepEnded(BaseException):
    """Raised in a step by a probe that has seen enough: the rest of the step is not run."""


class BadWorkloadError(Exception):
    """The factory cannot be found or called, or what it returns cannot be run."""


def text_of(error: BaseException) -> str:
    """Give the text of an exception; that of the user may raise when it is asked for it."""
    try:
        return str(error)
    except BaseException as another:  # it is the user's code that failed, and that is told
        return f"its text cannot be had: {type(another).__name__}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _says(error, _NO_MEMORY)


def is_device_fault(error: BaseException) -> bool:
    """Whether an error says that the device failed, after which its process can do nothing."""
    # The class of torch 2.8 on, beside the words that errors of CUDA's driver and libraries have.
    is_accelerators = isinstance(error, torch.AcceleratorError)
    words = ("cuda error", "cuda driver error")
    return is_accelerators or (isinstance(error, RuntimeError) and _says(error, words))


def is_of_fork(error: BaseException) -> bool:
    """Whether a process cannot use the GPU because what it is a copy of has used it before."""
    return isinstance(error, RuntimeError) and _says(error, _NOT_AFTER_A_FORK)


def _says(error: BaseException, words: Iterable[str]) -> bool:
    text = text_of(error).lower()
    return any(each in text for each in words)


@contextlib.contextmanager
def while_building() -> Iterator[None]:
    """Turn what goes wrong while a workload is built into the end of its job."""
    try:
        yield
    except BadWorkloadError as wrong:
        raise JobEnded(_failure(FailureReason.BAD_WORKLOAD, str(wrong))) from wrong
    except JobEnded:
        raise
    except Exception as error:
        raise JobEnded(_unbuilt(error)) from error


def _unbuilt(error: Exception) -> VerifyFailure:
    text = text_of(error)
    if is_out_of_memory(error):
        said = f": {text}" if text else ""  # Python's own MemoryError says nothing
        message = f"Building the workload asked for more memory than there is{said}"
        return _failure(FailureReason.OUT_OF_MEMORY, message)
    print_fault()  # what the factory made raises where it is only looked at
    said = f"{type(error).__name__}: {text}"[:500]
    message = f"looking at what the factory made raised {said}"
    return _failure(FailureReason.BAD_WORKLOAD, message)


def _failure(reason: FailureReason, message: str) -> VerifyFailure:
    return VerifyFailure(reason=reason, message=message, stage="build")


def raised_in(part: str, error: BaseException) -> Raised:
    """Keep an exception of a workload as the outcome of a run."""
    return Raised(
        part=part,
        kind=type(error).__name__,
        message=text_of(error)[:2000],
        out_of_memory=is_out_of_memory(error),
        device_fault=is_device_fault(error),
    )


def outcome_of(stage: str, error: Exception) -> Outcome:
    """Give the outcome of a stage that could not be run; a fault of ours is raised again."""
    if isinstance(error, BadWorkloadError):
        return Outcome(stage=stage, bad_workload=str(error))
    finds_none = _finds_no_device(error) or is_of_fork(error)
    if not (finds_none or is_out_of_memory(error) or is_device_fault(error)):
        raise error
    raised = raised_in("preparation", error)
    return Outcome(
        stage=stage, raised=replace(raised, device_fault=finds_none or raised.device_fault)
    )


def _finds_no_device(error: Exception) -> bool:
    """Whether torch says that it can use no GPU: it was built without CUDA, or sees no driver."""
    if isinstance(error, torch.cuda.DeferredCudaCallError):
        return True  # the GPU did not take what torch does with one first
    return isinstance(error, RuntimeError | AssertionError) and _says(error, _NO_DEVICE)
