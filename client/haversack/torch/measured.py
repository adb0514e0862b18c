"""What a real step needed and took, and how the next Estimate is told of it."""

from dataclasses import dataclass

from haversack.observed import BACKWARD, OPTIMIZER, Observed
from haversack.plan import Certificate, PeakAt
from haversack.run import Measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One step of a run that was measured.

    ``peak_bytes`` are allocated bytes, model states included; ``reserved_bytes`` what CUDA's
    allocator held. ``step_ns`` is the median of ``steps`` steps without a watch; ``tokens_per_s``
    are those that the run trains on, so recomputation counts for nothing. ``certificate`` is there
    where a plan was named.
    """

    observed: Observed
    peak_bytes: int
    peak_at: PeakAt
    reserved_bytes: int | None
    step_ns: int
    steps: int
    tokens_per_s: float | None
    device: str
    certificate: Certificate | None = None

    def measurements(self) -> tuple[Measurement, ...]:
        """Give the figures as Estimate takes them: the peak, and phases that it has too.

        The forward is left out: here it ends with the loss, which Estimate counts apart.
        """
        whole = Measurement(
            allocated_bytes=self.peak_bytes,
            reserved_bytes=self.reserved_bytes,
            tokens_per_s=self.tokens_per_s,
        )
        phases = [
            Measurement(phase=f"step 2 {name}", allocated_bytes=self.observed.of_phase(name))
            for name in (BACKWARD, OPTIMIZER)
            if self.observed.of_phase(name)
        ]
        return (whole, *phases)
