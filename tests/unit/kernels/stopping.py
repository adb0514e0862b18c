"""A solve that is cancelled while it runs, for whoever counts its steps."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from haversack_kernels.errors import SolveCancelled


def assert_stops_at_the_next_step(
    solve: Callable[[NDArray[np.uint8], NDArray[np.int64]], Any],
) -> None:
    """Set the flag of a solve once its first step is counted: at most one more may be.

    ``solve`` takes the cancel flag and the count of steps, and must not end by itself.
    """
    cancel, steps, stopped = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.int64), Event()

    def run() -> None:
        with pytest.raises(SolveCancelled):
            solve(cancel, steps)
        stopped.set()

    thread = Thread(target=run)
    thread.start()
    while steps[0] == 0 and thread.is_alive():  # ends: the search begins, or it has failed
        Event().wait(0.001)
    cancel[0] = 1
    begun = int(steps[0])
    thread.join()
    assert stopped.is_set()
    assert steps[0] <= begun + 1  # one may have begun before it was counted
