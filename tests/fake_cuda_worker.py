"""A fault-injecting fake of the CUDA worker: ``python tests/fake_cuda_worker.py FAULT FLAGS FDS``.

Speaks the worker's protocol; solves on the CPU, until its fault is due. No device takes part, so
what it shows is what the server does about faults, not that a device has them. ``FAULT`` is the
name of a function below; with ``FOLDER`` it fails in the first process alone, which leaves a file.
"""

import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_server.cuda import arrays


def main() -> None:
    name, folder, channel_fd, shared_fd = sys.argv[1:]
    channel = socket.socket(fileno=int(channel_fd))
    cancel = np.frombuffer(mmap.mmap(int(shared_fd), mmap.PAGESIZE), np.uint8, 1)
    fault = FAULTS[name]
    if folder and (Path(folder) / "failed").exists():
        fault = works
    if fault is starts_badly:
        sys.exit(3)
    if fault is is_unusable:
        reason = "AttributeError: module 'numpy' has no attribute 'row_stack'"
        arrays.send(channel, {"error": "unusable", "reason": reason})
        return
    arrays.send(channel, {"name": f"fake that {name}", "memory_bytes": 1 << 40})
    while (message := arrays.receive(channel)) is not None:
        if folder:
            (Path(folder) / "failed").touch()
        fault(channel, cancel, *message)


def works(channel: socket.socket, cancel: Any, question: Any, columns: list[NDArray[Any]]) -> None:
    from haversack_kernels import dense

    sizes, gains = columns
    chosen = dense.solve_one(sizes, gains, question["capacity"], unit=question["unit"])
    arrays.send(channel, {"gain": chosen.gain}, [chosen.mask])


def crashes(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(*_: object) -> None:
    sys.exit(7)


def hangs(*_: object) -> None:
    time.sleep(600)


def stops_when_told(channel: socket.socket, cancel: Any, *_: object) -> None:
    while not cancel[0]:
        time.sleep(0.002)
    arrays.send(channel, {"error": "cancelled", "states": 12})


def faults(channel: socket.socket, *_: object) -> None:
    reason = "DeviceFaultError: the CUDA device failed with CUDA_ERROR_ILLEGAL_ADDRESS"
    arrays.send(channel, {"error": "fault", "reason": reason})


def lacks_memory(channel: socket.socket, *_: object) -> None:
    arrays.send(channel, {"error": "memory", "reason": "too many cells"})


def overflows(channel: socket.socket, *_: object) -> None:
    arrays.send(channel, {"error": "overflow", "reason": "beyond int64"})


def takes_everything(channel: socket.socket, cancel: Any, question: Any, columns: Any) -> None:
    sizes, gains = columns
    arrays.send(channel, {"gain": int(gains.sum())}, [np.ones(sizes.size, dtype=np.bool_)])


def lies_about_its_gain(channel: socket.socket, cancel: Any, question: Any, columns: Any) -> None:
    arrays.send(channel, {"gain": 1 << 40}, [np.zeros(columns[0].size, dtype=np.bool_)])


def talks_nonsense(channel: socket.socket, *_: object) -> None:
    channel.sendall(b"Traceback (most recent call last):\n")


def dies_inside_an_array(channel: socket.socket, cancel: Any, question: Any, columns: Any) -> None:
    arrays.send(channel, {"gain": 0}, [])
    os._exit(0)


def starts_badly(*_: object) -> None:
    raise AssertionError("it has not started")


def is_unusable(*_: object) -> None:
    raise AssertionError("it is not usable")


FAULTS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        works,
        crashes,
        exits,
        hangs,
        stops_when_told,
        faults,
        lacks_memory,
        overflows,
        takes_everything,
        lies_about_its_gain,
        talks_nonsense,
        dies_inside_an_array,
        starts_badly,
        is_unusable,
    )
}


if __name__ == "__main__":
    main()
