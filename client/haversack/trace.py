"""A confirmation of a closed-form answer: the same step, really run by PyTorch on the CPU."""

from dataclasses import dataclass

from haversack.basis import Basis


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPhase:
    """Peak bytes of one phase: traced, by the closed form, and corrected for other kernels."""

    name: str
    traced_bytes: int = 0
    expected_bytes: int = 0
    corrected_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What a trace found; ``confirmed`` is the same phase of the peak, and at most 1 % apart."""

    phases: tuple[TracedPhase, ...] = ()
    peak_bytes: int = 0
    peak_phase: str = ""
    confirmed: bool = False
    corrections: tuple[str, ...] = ()
    method: str = ""
    basis: Basis = Basis.UNSPECIFIED
