"""Questions to a worker of its own, within one call: it ends with the call, whatever happens.

A process that crashes, is killed or sends what is no answer raises WorkerLostError, in a sentence
without a subject; the caller knows what it was asked. Knows no question. Imports no torch.
"""

import asyncio
import contextlib
import pathlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

from haversack.errors import InternalError
from haversack_server.leftovers import OUTPUT, remove_folder, tail
from haversack_server.processes import Process, start_afresh
from haversack_server.verify import reports
from haversack_server.verify.frames import FrameError
from haversack_server.verify.records import RecordError, from_json, to_json

Answer = TypeVar("Answer")


class WorkerLostError(Exception):
    """The worker ended before its answer; says how, and its last words."""


@dataclass(slots=True)
class Workers:
    """The workers that run now; one at a time, the others wait."""

    running: set[Process]
    one: asyncio.Semaphore

    @classmethod
    def none(cls) -> "Workers":
        """Begin without any."""
        return cls(set(), asyncio.Semaphore(1))

    async def close(self) -> None:
        """Kill what runs; its call ends with an error."""
        await asyncio.gather(*(process.close() for process in self.running))

    @contextlib.asynccontextmanager
    async def worker(
        self, order: str, *, deadline_s: float, memory_bytes: int
    ) -> AsyncIterator["Worker"]:
        """Start one, and kill it at the end of the block.

        Raises TimeoutError inside the block once the deadline has passed.
        """
        async with self.one:
            scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"haversack-{order}-"))
            limits = {
                "scratch": str(scratch),
                "deadline_ns": int(deadline_s * 1e9),
                "memory_bytes": memory_bytes,
            }
            try:
                process = await start_afresh(limits, gpu="", order=order)
                self.running.add(process)
                try:
                    async with asyncio.timeout(deadline_s):
                        yield Worker(process, scratch)
                finally:
                    self.running.discard(process)
                    await process.close()
            finally:
                await asyncio.to_thread(remove_folder, scratch)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that answers records with records."""

    process: Process
    scratch: pathlib.Path

    async def ask(self, order: Any, kind: type[Answer]) -> Answer:
        """Send an order and wait for its answer. Raises WorkerLostError."""
        await self.process.send(to_json(order))
        return await self.hear(kind)

    async def hear(self, kind: type[Answer]) -> Answer:
        """Wait for an answer, the next one to what was asked before. Raises WorkerLostError."""
        try:
            message = await self.process.receive()
            if message is not None:
                return from_json(kind, message)
        except (FrameError, RecordError) as wrong:
            raise InternalError(f"a worker sent something that is no answer: {wrong}") from wrong
        status = await self.process.status()
        how = "was lost" if status is None else reports.ended(status)
        last = tail(self.scratch / OUTPUT).strip().rpartition("\n")[2]
        said = f": {last[:200]}" if last else ""
        raise WorkerLostError(f"{how} before its answer{said}")
