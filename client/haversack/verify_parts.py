"""Parts of a Verify request: limits of its job, a plan to verify, ranks."""

from dataclasses import dataclass

from haversack import checks
from haversack.errors import check
from haversack.parallelism import Parallelism, Sharding
from haversack.plan_parts import CountedStep
from haversack.run import BlockAction
from haversack.training import NumberType, Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyLimits:
    """Limits of a job's process."""

    deadline_ns: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        found = checks.optional_integer("limits.deadline_ns", self.deadline_ns, least=1)
        found += checks.optional_integer("limits.memory_bytes", self.memory_bytes, least=1)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyPlan:
    """A plan as the caller applies it, to be verified."""

    actions: tuple[BlockAction, ...] = ()
    predicted_peak_bytes: int | None = None
    predicted_extra_ns: int | None = None
    model_fingerprint: str = ""
    counted: CountedStep | None = None
    parallelism: Parallelism | None = None
    precision: Precision = Precision.UNSPECIFIED
    reduce_type: NumberType = NumberType.UNSPECIFIED

    def __post_init__(self) -> None:
        found = checks.optional_integer("plan.predicted_peak_bytes", self.predicted_peak_bytes)
        found += checks.optional_integer("plan.predicted_extra_ns", self.predicted_extra_ns)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyWorld:
    """Ranks of a sharded job."""

    size: int
    sharding: Sharding = Sharding.UNSPECIFIED

    def __post_init__(self) -> None:
        check(checks.integer("world.size", self.size, least=1, most=2**16))
