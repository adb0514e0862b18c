"""The doors to the rooms behind the service. Each is imported when it is first used.

So a server inside a caller's process is up before it has paid for what it may never be asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from haversack.estimate import Estimate, EstimateRequest
from haversack.plan import Plan, PlanRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from haversack_server.plan.solving import Devices

Stop = Callable[[], bool]


def _estimate(request: EstimateRequest, stop: Stop) -> Estimate:
    from haversack_server.estimate.answer import estimate

    return estimate(request, stop)


def _plan(request: PlanRequest, cancel: "NDArray[np.uint8]", devices: "Devices" = None) -> Plan:
    from haversack_server.plan.answer import plan

    return plan(request, cancel, devices)


def _warm() -> None:
    from haversack_server.plan.warmup import warm

    warm()


@dataclass(frozen=True, slots=True)
class Rooms:
    """What answers: functions of nouns, which run in threads. They end soon after being told to.

    An estimate asks its second argument; a plan looks at the first byte of its own.
    """

    estimate: Callable[[EstimateRequest, Stop], Estimate] = _estimate
    plan: "Callable[[PlanRequest, NDArray[np.uint8]], Plan]" = _plan
    warm: Callable[[], None] = _warm

    @classmethod
    def solving_on(cls, devices: "Devices") -> "Rooms":
        """Return rooms whose dense programmes may run on what ``devices`` gives."""
        return cls(plan=partial(_plan, devices=devices))
