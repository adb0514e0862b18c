"""Work off the event loop, and its end: nothing runs on for a caller that has gone.

Kernels release the GIL, so as many solves run at once as there are threads, while the loop goes
on answering health checks.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Threads:
    """A pool of threads whose work can be told to stop."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._jobs: set[Future[Any]] = set()

    async def run(
        self, work: Callable[[], Answer], stop: Callable[[], object] | None = None
    ) -> Answer:
        """Run ``work`` in a thread and wait for it.

        Where the caller is cancelled, or its deadline passes, work that has not begun never does;
        work that has is told to ``stop``, and waited for: a call has ended when its thread has.
        """
        job = self._pool.submit(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if stop is not None:
                stop()
            await _ended(job)
            raise

    async def close(self) -> None:
        """Wait for what runs; what waits for a thread is dropped."""
        # The loop must go on: it is what tells running work to stop.
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(_ended(job) for job in tuple(self._jobs)))
        self._pool.shutdown()  # idle by now, so the threads end at once


async def _ended(job: Future[Any]) -> None:
    if not job.cancelled():
        # Its answer, or its error, is for nobody any more.
        await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
