"""The CUDA worker: ``python -m haversack_server.cuda CHANNEL SHARED``, started by the server.

Two inherited file descriptors: a socket, on which questions come and answers go, one at a time,
and a page of shared memory, of which the first byte cancels the solve that is under way. Ends when
the server's end of the socket closes, whatever it is doing then.
"""

import mmap
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import CancelFlag
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.errors import SolveCancelled
from haversack_server.cuda import arrays

Answer = tuple[dict[str, Any], list[NDArray[Any]]]


def main() -> int:
    """Make the device ready, say so, and solve until nobody asks any more."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    shared = mmap.mmap(int(sys.argv[2]), mmap.PAGESIZE)
    threading.Thread(target=_end_with_the_server, args=(channel,), daemon=True).start()
    try:
        arrays.send(channel, _warmed_up())
    except Exception as error:  # whatever is broken about the installation, it is said
        arrays.send(channel, {"error": "unusable", "reason": _in_words(error)})
        return 1
    cancel = np.frombuffer(shared, np.uint8, 1)
    while (question := arrays.receive(channel)) is not None:
        arrays.send(channel, *_answered(*question, cancel))
    return 0


def _end_with_the_server(channel: socket.socket) -> None:
    """End at once when the other end closes: a solve that hangs would never look."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def _warmed_up() -> dict[str, Any]:
    """Make the context and compile every kernel, or load it; describe the device."""
    from haversack_kernels import cuda
    from haversack_kernels.cuda import launch, warmup

    warmup.warm_up()
    device = cuda.device()  # None in numba's simulator, which tests use
    return {
        "name": "numba's CUDA simulator" if device is None else device.name,
        "memory_bytes": launch.free_bytes(),
    }


def _answered(question: dict[str, Any], columns: list[NDArray[Any]], cancel: CancelFlag) -> Answer:
    """Solve, or say why not."""
    try:
        return _SOLVES[question.pop("solve")](*columns, **question, cancel=cancel)
    except SolveCancelled as cancelled:
        return {"error": "cancelled", "states": cancelled.states}, []
    except OverflowError as beyond:
        return {"error": "overflow", "reason": str(beyond)}, []
    except ArenaLimitError as refusal:
        return {"error": "memory", "reason": str(refusal)}, []
    except Exception as error:
        return {"error": "fault", "reason": _in_words(error)}, []


def _knapsack(
    sizes: NDArray[Any], gains: NDArray[Any], *, capacity: int, unit: int, cancel: CancelFlag
) -> Answer:
    from haversack_kernels.cuda import knapsack

    chosen = knapsack.solve_one(sizes, gains, capacity, unit=unit, cancel=cancel)
    return {"gain": chosen.gain}, [chosen.mask]


def _chain(*columns: NDArray[Any], unit: int, cancel: CancelFlag) -> Answer:
    from haversack_kernels.cuda import ceiling

    planned = ceiling.solve(ceiling.Chain(*columns), unit=unit, cancel=cancel)
    return {"extra": planned.extra, "feasible": planned.feasible}, [planned.options]


_SOLVES: dict[str, Callable[..., Answer]] = {"knapsack": _knapsack, "chain": _chain}


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    sys.exit(main())
