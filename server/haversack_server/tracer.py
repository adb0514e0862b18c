"""Runs traces: one worker process each, started afresh, killed at its deadline or with its call.

Supervises and knows nothing of what a trace computes: no torch, no gRPC. A bounded call rather than
a job: a trace of a small model ends within seconds, and its only reader is the call that asked.
"""

import asyncio
import pathlib
import shutil
import tempfile

from haversack.errors import InternalError, MissingExtraError, NotSupportedError
from haversack_server.estimate.trace import TraceFound, TraceOrder
from haversack_server.processes import Process, start_afresh, tail
from haversack_server.verify import reports
from haversack_server.verify.frames import FrameError
from haversack_server.verify.records import RecordError, from_json, to_json

DEADLINE_S = 120.0
MEMORY_BYTES = 8 * 2**30


class Tracer:
    """Starts one worker at a time."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._one = asyncio.Semaphore(1)
        self._running: set[Process] = set()

    async def close(self) -> None:
        """Kill what runs; its call ends with an error."""
        await asyncio.gather(*(process.close() for process in self._running))

    async def run(self, order: TraceOrder) -> TraceFound:
        """Run an order; raises what says why there is no figure. Cancellation kills the worker."""
        async with self._one:
            scratch = pathlib.Path(tempfile.mkdtemp(prefix="haversack-trace-"))
            try:
                return await self._run(order, scratch)
            finally:
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def _run(self, order: TraceOrder, scratch: pathlib.Path) -> TraceFound:
        limits = {
            "scratch": str(scratch),
            "deadline_ns": int(self._deadline_s * 1e9),
            "memory_bytes": MEMORY_BYTES,
        }
        process = await start_afresh(limits, gpu="", order="trace")
        self._running.add(process)
        try:
            async with asyncio.timeout(self._deadline_s):
                await process.send(to_json(order))
                found = await _received(process, scratch)
        except TimeoutError:
            raise NotSupportedError(
                f"questions: the trace did not end within {self._deadline_s:g} s and was killed; "
                "send fewer layers or tokens"
            ) from None
        finally:
            self._running.discard(process)
            await process.close()
        if found.failure.startswith("a trace needs"):
            raise MissingExtraError(found.failure)
        if found.failure:
            raise NotSupportedError(f"questions: the trace ended with {found.failure}")
        return found


async def _received(process: Process, scratch: pathlib.Path) -> TraceFound:
    try:
        message = await process.receive()
        if message is not None:
            return from_json(TraceFound, message)
    except (FrameError, RecordError) as wrong:
        raise InternalError(
            f"the trace's process sent something that is no answer: {wrong}"
        ) from wrong
    status = await process.status()
    how = "was lost" if status is None else reports.ended(status)
    last = tail(scratch / "output.txt").strip().rpartition("\n")[2]
    raise NotSupportedError(f"questions: the trace's process {how} before its answer: {last[:200]}")
