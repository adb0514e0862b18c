"""Whether a process has left GPUs alone, so that copies of it may use them; what it loads first.

A copy of a process that has used CUDA can use no GPU, and nothing undoes that. Opens no device.
"""

import contextlib
import gc
import importlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.fork import Ended, run_forked

# CUDA's driver opens it and keeps it; NVML, whose users may be copied, opens others.
_FILE_OF_CUDA = "/dev/nvidia-uvm"


def preload() -> None:
    """Load what torch loads at its first checkpointed call, before there are copies that would.

    These are 800 modules, which take as long as torch itself: 3.8 and 3.2 s on two cores.
    """
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()  # shared with every copy, and never looked through in one


class Untouched:
    """Tells whether GPUs were left alone since this was made, and no thread was started."""

    def __init__(self) -> None:
        self._threads = thread_count()

    def holds(self) -> bool:
        """Whether copies of this process may use a GPU."""
        cuda: Any = torch.cuda  # parts of it have no types
        return not (
            cuda.is_initialized()
            or _FILE_OF_CUDA in _open_files()
            or thread_count() > self._threads  # of autograd, say, which has one for each GPU
            or _is_spoilt_in_a_copy()
        )


@contextlib.contextmanager
def kept_forkable(kind: str) -> Iterator[None]:
    """Build inside of it what ranks on devices of a kind are copies of. Raises BadWorkloadError."""
    untouched = Untouched()
    if kind == "cpu":
        yield
        return
    preload()
    yield
    if not untouched.holds():
        raise BadWorkloadError(
            "building the workload uses a GPU or starts threads, and ranks are copies of the "
            "process that builds it, which then could use none; build it on the CPU: each rank "
            "moves its copy to its GPU"
        )


def _is_spoilt_in_a_copy() -> bool:
    """Ask torch, which can only tell in a copy: it takes note where it asks CUDA for devices."""
    asked = getattr(torch.cuda, "_is_in_bad_fork", lambda: False)
    found = run_forked(lambda: {"spoilt": bool(asked())})
    return isinstance(found, Ended) or bool(found["spoilt"])


def thread_count() -> int:
    """Count the threads of this process, those that are not Python's too."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:  # no Linux: those of Python at least
        return threading.active_count()


def _open_files() -> set[str]:
    return set(_linked("/proc/self/fd"))


def _linked(folder: str) -> Iterator[str]:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            yield os.readlink(f"{folder}/{name}")
        except OSError:  # that of the listing itself
            continue
