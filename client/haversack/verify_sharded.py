"""What a sharded Verify job adds to its report: its ranks, and the run that is not sharded.

What each field means is said once, in ``verify.proto``.
"""

from dataclasses import dataclass

from haversack.basis import Basis
from haversack.parallelism import Sharding
from haversack.verify_facets import FacetResult


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveCount:
    """How often a rank took part in one kind of collective in a step."""

    operation: str
    kind: str = ""
    plain_count: int = 0
    checkpointed_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRank:
    """One rank of a sharded job."""

    rank: int = 0
    device: str = ""
    parameter_bytes: int = 0
    plain_peak_bytes: int = 0
    checkpointed_peak_bytes: int = 0
    collectives: tuple[CollectiveCount, ...] = ()
    predicted_plain_peak_bytes: int | None = None
    predicted_checkpointed_peak_bytes: int | None = None
    planned_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifySharded:
    """How a run was spread over ranks, and what each of them saw."""

    sharding: Sharding = Sharding.UNSPECIFIED
    world_size: int = 0
    backend: str = ""
    units: tuple[str, ...] = ()
    ranks: tuple[VerifyRank, ...] = ()
    against_unsharded: tuple[FacetResult, ...] = ()
    prediction_basis: Basis = Basis.UNSPECIFIED
    prediction_method: str = ""
