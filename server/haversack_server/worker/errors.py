"""Faults of a workload, which end its job with a typed reason."""

import torch


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
