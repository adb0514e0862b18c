"""A plain limit of calls in flight; what is above it is refused at once, never queued.

CancelVerify, which makes room, and what lists jobs and workloads are always let in: they are cheap.
"""

from typing import Any

from haversack.errors import OverloadedError
from haversack_server.service.around import SERVICE, Around, Call
from haversack_server.service.metrics import Metrics

RETRY_AFTER_NS = 100_000_000
_COUNTED = frozenset(f"/{SERVICE.full_name}/{name}" for name in ("Estimate", "Plan", "Verify"))


class Admission(Around):
    """Lets in at most ``most`` calls at once."""

    def __init__(self, most: int, metrics: Metrics) -> None:
        super().__init__()
        self._most = most
        self._in_flight = 0
        self._metrics = metrics

    async def around(self, call: Call) -> Any:
        """Run a call if there is room for it."""
        if call.method not in _COUNTED:
            return await call.answer()
        if self._in_flight >= self._most:
            self._metrics.rejected_in_flight.inc()
            raise OverloadedError(
                f"{self._in_flight} calls are in flight, the most that this server takes; "
                "come back later",
                retry_after_ns=RETRY_AFTER_NS,
            )
        self._count(1)
        try:
            return await call.answer()
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._in_flight += change
        self._metrics.in_flight.set(self._in_flight)
