"""Runs traces: one worker process each, started afresh, killed at its deadline or with its call.

Supervises and knows nothing of what a trace computes: no torch, no gRPC. A bounded call rather than
a job: a trace of a small model ends within seconds, and its only reader is the call that asked.
"""

from haversack.errors import MissingExtraError, NotSupportedError
from haversack_server.bounded import WorkerLostError, Workers
from haversack_server.estimate.trace import TraceFound, TraceOrder

DEADLINE_S = 120.0
MEMORY_BYTES = 8 * 2**30


class Tracer:
    """Starts one worker at a time."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._workers = Workers.none()

    async def close(self) -> None:
        """Kill what runs; its call ends with an error."""
        await self._workers.close()

    async def run(self, order: TraceOrder) -> TraceFound:
        """Run an order; raises what says why there is no figure. Cancellation kills the worker."""
        starting = self._workers.worker(
            "trace", deadline_s=self._deadline_s, memory_bytes=MEMORY_BYTES
        )
        try:
            async with starting as worker:
                found = await worker.ask(order, TraceFound)
        except TimeoutError:
            raise NotSupportedError(
                f"questions: the trace did not end within {self._deadline_s:g} s and was killed; "
                "send fewer layers or tokens"
            ) from None
        except WorkerLostError as lost:
            raise NotSupportedError(f"questions: the trace's process {lost}") from lost
        if found.failure.startswith("a trace needs"):
            raise MissingExtraError(found.failure)
        if found.failure:
            raise NotSupportedError(f"questions: the trace ended with {found.failure}")
        return found
