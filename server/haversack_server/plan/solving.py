"""How the solves of a plan run: what stops them, where dense programmes may run, what they tell.

Kernels are loaded when the first solve needs them. Knows no problem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haversack.plan import SolvedBy

if TYPE_CHECKING:
    from haversack_kernels.devices import Device
    from haversack_kernels.dispatch import Explanation

    Devices = Callable[[], Sequence[Device]] | None

Cancel = NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """What the solves of one request share.

    Once ``cancel[0]`` is set they raise the kernels' SolveCancelled. ``devices`` is asked at every
    solve, since a device may come and go; None is the CPU alone.
    """

    cancel: Cancel = None
    devices: "Devices" = None

    def keywords(self) -> dict[str, Any]:
        """Give what ``haversack_kernels.dispatch`` is told."""
        from haversack_kernels.dispatch import CPU

        devices = (CPU,) if self.devices is None else self.devices()
        return {"devices": devices, "cancel": self.cancel}


def solved_by(why: "Explanation") -> SolvedBy:
    """Say in an answer what dispatch did."""
    return SolvedBy(algorithm=why.algorithm, cells=why.cells, device=why.device, reason=why.reason)
