"""Keeps one CUDA worker: its device is there while the worker is ready, and gone while it is not.

A worker that fails costs the solve it had, which goes on elsewhere, and is replaced off the path of
requests. One that cannot be made ready, or the third in a row that fails, ends the use of the
device; the log says why, once. Knows nothing of what is solved.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from haversack_kernels import cuda
from haversack_kernels._jit import CancelFlag
from haversack_kernels.devices import CPU, Device
from haversack_kernels.errors import DeviceFailedError, SolveCancelled
from haversack_server.cuda.arrays import Message
from haversack_server.cuda.device import Question, described
from haversack_server.cuda.process import Worker, WorkerLostError

log = logging.getLogger(__name__)

START_S = 300.0
"""Loading numba, making a context and compiling every kernel: some 20 s where no code is kept."""

SOLVE_S = 30.0
"""What no solve takes: dispatch gives away none of more than 3 s."""

STOP_S = 5.0
"""What the end of a cancelled solve may take: what was sent to the device is waited for."""

MOST_IN_A_ROW = 3
TURN_S = 0.005


class Keeper:
    """Keeps a worker ready; gives its device to dispatch."""

    def __init__(
        self,
        count: Callable[[str], object],
        start: Callable[[], Worker] = Worker,
        *,
        solve_s: float = SOLVE_S,
        stop_s: float = STOP_S,
    ) -> None:
        """Count how solves end, each as one of ``outcomes.OUTCOMES``."""
        self._count = count
        self._start_worker = start
        self._limits_s = solve_s, stop_s
        self._turn = threading.Lock()  # of the one solve that the worker has
        self._change = threading.Lock()  # of what follows
        self._worker: Worker | None = None
        self._device: Device | None = None
        self._starting: threading.Thread | None = None
        self._in_a_row = 0
        self._closed = False

    def open(self) -> None:
        """Begin to start a worker if a device is attached."""
        try:
            attached = cuda.device()
        except Exception as broken:  # what is wrong with an installation is no reason not to serve
            log.warning("no CUDA device is used, because looking for one failed: %r", broken)
            return
        if attached is not None:
            self.start()

    def start(self) -> None:
        """Begin to start a worker; no request waits for it."""
        self._starting = threading.Thread(target=self._start, name="haversack-cuda", daemon=True)
        self._starting.start()

    def settled(self, timeout_s: float) -> bool:
        """Wait until the start has ended one way or the other; tell whether the device is there."""
        if self._starting is not None:
            self._starting.join(timeout_s)
        return self.is_ready

    @property
    def is_ready(self) -> bool:
        """Tell whether solves would be given to the device."""
        return self._device is not None

    def devices(self) -> tuple[Device, ...]:
        """Return where dense DPs may run now."""
        device = self._device
        return (CPU,) if device is None else (CPU, device)

    def close(self) -> None:
        """End the worker; a solve that it has goes on elsewhere."""
        with self._change:
            self._closed = True
            worker, self._worker, self._device = self._worker, None, None
        if worker is not None:
            worker.end()

    def _start(self) -> None:
        try:
            worker = self._start_worker()
            said = worker.first_words(START_S)
        except (OSError, WorkerLostError) as lost:
            log.warning("no CUDA device is used, because its worker did not start: %s", lost)
            return
        if "error" in said:
            worker.end()
            log.warning("no CUDA device is used, because its worker says: %s", said["reason"])
            return
        with self._change:
            if not self._closed:
                self._worker, self._device = worker, described(said, self._ask)
                return
        worker.end()

    def _ask(
        self, question: Question, cancel: CancelFlag | None, read: Callable[[Message], Any]
    ) -> Any:
        """Ask the worker once it is free; what goes wrong is counted and raised."""
        while not self._turn.acquire(timeout=TURN_S):
            if cancel is not None and cancel[0]:
                raise SolveCancelled(0)
        try:
            worker = self._worker
            if worker is None:
                self._fail("away", "its worker is being replaced")
            return self._read(worker, self._answer(worker, question, cancel), read)
        finally:
            self._turn.release()

    def _answer(self, worker: Worker, question: Question, cancel: CancelFlag | None) -> Message:
        try:
            return worker.ask(*question, cancel, *self._limits_s)
        except WorkerLostError as lost:
            self._replace(worker, lost.outcome, str(lost))

    def _read(self, worker: Worker, answer: Message, read: Callable[[Message], Any]) -> Any:
        said = answer[0]
        if "error" in said:
            self._raise(worker, said)
        try:
            found = read(answer)
        except (ValueError, KeyError, TypeError) as wrong:
            self._replace(worker, "wrong", f"its answer was {wrong}")
        self._in_a_row = 0
        self._count("solved")
        return found

    def _raise(self, worker: Worker, said: Mapping[str, Any]) -> NoReturn:
        """Raise what the worker says instead of an answer."""
        if said["error"] == "cancelled":
            self._count("cancelled")
            raise SolveCancelled(said["states"])
        if said["error"] == "overflow":  # the answer of every device
            self._count("solved")
            raise OverflowError(said["reason"])
        if said["error"] == "memory":
            self._fail("memory", said["reason"])
        self._replace(worker, "fault", said["reason"])

    def _replace(self, worker: Worker, outcome: str, reason: str) -> NoReturn:
        """End a worker that failed, and start another unless this keeps happening."""
        worker.end()
        with self._change:
            self._worker, self._device = None, None
            closed = self._closed
        self._in_a_row += 1
        if not closed:
            log.warning("a solve on the CUDA device failed and goes on elsewhere: %s", reason)
            if self._in_a_row < MOST_IN_A_ROW:
                self.start()
            else:
                log.warning("no CUDA device is used any more: it failed %d times", self._in_a_row)
        self._fail(outcome, reason)

    def _fail(self, outcome: str, reason: str) -> NoReturn:
        self._count(outcome)
        raise DeviceFailedError(reason)
