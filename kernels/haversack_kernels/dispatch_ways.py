"""Ways to solve a knapsack by a dense DP: where, in which cells, in which unit; and their reasons.

Knows what is known of costs (``haversack_kernels.dispatch_cost``) and of devices. Knows nothing of
when a way is taken.
"""

from collections.abc import Sequence
from typing import NamedTuple

from haversack_kernels._jit import CancelFlag
from haversack_kernels.dense import Chosen
from haversack_kernels.devices import Device, Offer, cheapest
from haversack_kernels.dispatch_cost import dense_work
from haversack_kernels.errors import DeviceFailedError
from haversack_kernels.knapsack import Problem
from haversack_kernels.unsettled import Unsettled

MOST_DENSE_NS = 3e9


class Explanation(NamedTuple):
    """Say what solved, or would solve, a problem: ``cells`` is "" where no dense DP takes part."""

    algorithm: str
    cells: str
    device: str
    reason: str


class Way(NamedTuple):
    """Hold a way to solve by a dense DP; a cell is ``unit`` of the problem's, which has its own."""

    offer: Offer
    cells: str
    unit: int
    size_unit: int

    @property
    def device(self) -> Device:
        """Return where it would run."""
        return self.offer.device

    @property
    def ns(self) -> float:
        """Return what it would take."""
        return self.offer.ns

    def solve(self, left: Unsettled, cancel: CancelFlag | None) -> Chosen:
        """Choose from what is left."""
        return self.device.one(left.size, left.gain, left.capacity, unit=self.unit, cancel=cancel)

    def __str__(self) -> str:
        unit = self.unit * self.size_unit
        in_units = "" if unit == 1 else f" in units of {unit}"
        return f"{self.cells} cells on {self.device.name}{in_units}, {self.offer}"


def cheapest_way(
    problem: Problem | Unsettled, devices: Sequence[Device], size_unit: int, unit: int = 1
) -> Way | None:
    """Return the cheapest dense DP in this unit, if there is one in time and memory."""
    work = dense_work(problem, unit)
    offer = cheapest(devices, lambda device: device.one_ns(work))
    if offer is None or offer.ns > MOST_DENSE_NS:
        return None
    return Way(offer, work.kind, unit, size_unit)


def others(devices: Sequence[Device], device: Device) -> tuple[Device, ...]:
    """Return the devices that are left where one failed."""
    return tuple(each for each in devices if each is not device)


def after(device: Device, failed: DeviceFailedError, why: Explanation) -> Explanation:
    """Say what solved in the end, and what failed before."""
    return why._replace(reason=f"{device.name} failed ({failed}); {why.reason}")
