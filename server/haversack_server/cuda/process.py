"""The server's end of a CUDA worker: one process, from its start to its end, however that comes.

A question is answered, or the worker is lost: it closed, crashed, was killed, or did not answer in
time. Then it is killed, and whoever asked is told. Knows nothing of solves.
"""

import contextlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import haversack_kernels
from haversack_kernels._jit import CancelFlag
from haversack_server.cuda import arrays
from haversack_server.processes import import_path, kill_group
from haversack_server.verify.frames import FrameError

COMMAND = (sys.executable, "-P", "-m", "haversack_server.cuda")
LOOK_MS = 5
"""How often a caller that waits looks at its cancel flag."""

PASS_S = 10.0
"""What passing on a question or an answer may take; the largest are some tens of MB."""

END_S = 5.0
LAST_S = 0.5


class WorkerLostError(Exception):
    """Tell that a worker is no more, and why; ``outcome`` is a word for a metric."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Worker:
    """A process that answers one question at a time; lost once it has failed to."""

    def __init__(
        self, command: Sequence[str] = COMMAND, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it; it says something when it is ready."""
        self._channel, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as page, theirs:
            page.truncate(mmap.PAGESIZE)
            self._shared = mmap.mmap(page.fileno(), mmap.PAGESIZE)
            fds = theirs.fileno(), page.fileno()
            self._popen = subprocess.Popen(
                [*command, *map(str, fds)],
                pass_fds=fds,
                env=_environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # what is typed at the server's terminal is not for it
            )
        self._cancel = np.frombuffer(self._shared, np.uint8, 1)

    @property
    def pid(self) -> int:
        """Return the process, which leads a group of its own."""
        return self._popen.pid

    def ask(
        self,
        question: Mapping[str, Any],
        columns: Sequence[NDArray[Any]],
        cancel: CancelFlag | None,
        limit_s: float,
        stop_s: float,
    ) -> arrays.Message:
        """Ask, and wait for the answer; a cancel flag that is set meanwhile is passed on.

        Raises WorkerLostError if none comes within ``limit_s``, or ``stop_s`` after the flag.
        """
        self._cancel[0] = 0

        def ask() -> arrays.Message | None:
            self._channel.settimeout(PASS_S)
            arrays.send(self._channel, question, columns)
            return self._answer(cancel, limit_s, stop_s)

        return self._or_lost(ask)

    def first_words(self, limit_s: float) -> dict[str, Any]:
        """Wait for what it says when it is ready. Raises WorkerLostError if it does not."""
        return self._or_lost(lambda: self._answer(None, limit_s, limit_s))[0]

    def end(self) -> None:
        """Kill it, if it is still there; a driver that hangs may hold it back even then."""
        self._channel.close()
        if self._popen.poll() is None:
            kill_group(self.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(END_S)

    def _or_lost(self, work: Callable[[], arrays.Message | None]) -> arrays.Message:
        try:
            answer = work()
        except TimeoutError as late:
            self.end()
            raise WorkerLostError("hung", str(late)) from late
        except (OSError, FrameError) as gone:
            raise WorkerLostError("lost", self._end(str(gone))) from gone
        if answer is None:
            raise WorkerLostError("lost", self._end("it closed its end"))
        return answer

    def _answer(
        self, cancel: CancelFlag | None, limit_s: float, stop_s: float
    ) -> arrays.Message | None:
        self._wait(cancel, limit_s, stop_s)
        self._channel.settimeout(PASS_S)
        return arrays.receive(self._channel)

    def _wait(self, cancel: CancelFlag | None, limit_s: float, stop_s: float) -> None:
        """Wait until there is something to read."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        deadline, why = time.monotonic() + limit_s, f"no answer after {limit_s:g} s"
        while not poll.poll(LOOK_MS):
            now = time.monotonic()
            if cancel is not None and cancel[0] and not self._cancel[0]:
                self._cancel[0] = 1
                deadline, why = now + stop_s, f"no end {stop_s:g} s after it was told to stop"
            if now > deadline:
                raise TimeoutError(why)

    def _end(self, otherwise: str) -> str:
        """Make sure of its end; say how it came, if it came by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(LAST_S)
        status = self._popen.poll()
        self.end()
        if status is None:
            return otherwise
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process ended with {status}"


def _environment() -> dict[str, str]:
    """Give the worker's variables: none of the server's own, since they may hold secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAVERSACK_")}
    packages = Path(__file__).parents[1], Path(haversack_kernels.__file__).parent
    return kept | {"PYTHONPATH": import_path(kept, packages)}
