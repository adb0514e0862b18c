"""Work off the event loop, and its end: nothing runs on for a caller that has gone.

Kernels release the GIL, so as many solves run at once as there are threads, while the loop goes
on answering health checks. Knows nothing of what the work is.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from haversack.errors import UnavailableError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Work = Callable[[], Any]
_Queue = SimpleQueue[tuple["Future[Any]", Work] | None]


class Threads:
    """A pool of threads whose work can be told to stop.

    The threads are daemons: work that does not stop when told to is left behind at the end of the
    process, instead of holding it up.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._most = count
        self._queue: _Queue = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._jobs: dict[Future[Any], Callable[[], object] | None] = {}
        self._callers: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(
        self,
        work: Callable[[], Answer],
        stop: Callable[[], object] | None = None,
        *,
        holds_caller: bool = True,
    ) -> Answer:
        """Run ``work`` in a thread and wait for it.

        Where the caller is cancelled, or its deadline passes, work that has not begun never does;
        work that has is told to ``stop``, and waited for: a call has ended when its thread has.
        Who is not held leaves at once, and the work goes on.
        """
        job = self._submit(work, stop)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if stop is not None:
                stop()
            if holds_caller:
                await self._hold_caller(job)
            raise

    async def close(self, grace_s: float) -> None:
        """Tell what runs to stop, and wait for it ``grace_s`` seconds at most.

        What waits for a thread is dropped. What has not stopped by then is abandoned, with a line
        in the log.
        """
        self._closed = True
        for job, stop in tuple(self._jobs.items()):
            if not job.cancel() and stop is not None:
                stop()
        for _ in self._threads:
            self._queue.put(None)
        ends = asyncio.gather(*(_ended(job) for job in tuple(self._jobs)))
        # The loop must go on: calls whose work ends here still have their own last steps.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ends, grace_s)
        left = sum(not job.done() for job in tuple(self._jobs))
        if left:
            await self._abandon(left, grace_s)
            return
        for thread in self._threads:
            thread.join()  # idle by now, so it ends at once

    def _submit(self, work: Work, stop: Callable[[], object] | None) -> "Future[Any]":
        if self._closed:
            raise UnavailableError("the server stops; ask it again once it is back")
        job: Future[Any] = Future()
        self._jobs[job] = stop
        job.add_done_callback(lambda ended: self._jobs.pop(ended, None))
        self._queue.put((job, work))
        if len(self._threads) < self._most:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=_work_off, args=(self._queue,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return job

    async def _hold_caller(self, job: "Future[Any]") -> None:
        """Keep a cancelled caller until its work has ended, or is abandoned."""
        caller = asyncio.current_task()
        assert caller is not None
        self._callers.add(caller)
        try:
            await _ended(job)
        finally:
            self._callers.discard(caller)

    async def _abandon(self, left: int, grace_s: float) -> None:
        log.warning(
            "%s: %d still at work %g s after being told to stop; left behind",
            self._name,
            left,
            grace_s,
        )
        callers = tuple(self._callers)
        for caller in callers:
            caller.cancel()
        if callers:
            await asyncio.wait(callers, timeout=grace_s)


def _work_off(queue: _Queue) -> None:
    """Run what is queued, until there is a None."""
    while (given := queue.get()) is not None:
        job, work = given
        if job.set_running_or_notify_cancel():
            try:
                job.set_result(work())
            except BaseException as failure:  # it is the caller's, whatever it is
                job.set_exception(failure)
        del given, job, work  # nothing of a call outlives it while the thread waits


async def _ended(job: "Future[Any]") -> None:
    if not job.cancelled():
        # Its answer, or its error, is for nobody any more.
        await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
