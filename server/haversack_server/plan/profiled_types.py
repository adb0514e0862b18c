"""Numbers of a profiled step on ranks: as they are profiled, or FSDP2's mixed precision.

A profile of mixed precision was run with parameters in bf16. Shards, their gradients and the
optimizer stay in fp32; gathers are in bf16, reductions in a type of their own. Knows no order.
"""

from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.plan import PlanRequest
from haversack.profile import Profile
from haversack.spread import spread_of
from haversack.training import NumberType, Precision, Training
from haversack_server.memory.recipe import Recipe, recipe

# An element is a byte: a profile has no widths, and everything has one type.
BYTES = Recipe(
    parameter=1,
    gradient=1,
    master=0,
    moment=1,
    moments=None,
    compute=1,
    reduce=1,
    formula="bytes as they are profiled",
    source="the profile",
)
_REDUCED = (NumberType.UNSPECIFIED, NumberType.FP32, NumberType.BF16)


def is_mixed(profile: Profile) -> bool:
    """Whether the step was run with other numbers than are stored."""
    return profile.precision is Precision.FP32_BF16_COMPUTE


def recipe_of(profile: Profile, training: Training) -> Recipe:
    """Give the widths of a rank's numbers; without mixed precision all are one byte."""
    if not is_mixed(profile):
        return BYTES
    numbers = Training(precision=profile.precision, reduce_type=training.reduce_type)
    return recipe(numbers, Sharding.FSDP2)[0]


def reduce_type_of(profile: Profile, training: Training) -> NumberType:
    """Give the type of reductions under mixed precision: fp32 if nothing is said."""
    if not is_mixed(profile):
        return NumberType.UNSPECIFIED
    return training.reduce_type or NumberType.FP32


def stored_bytes(profile: Profile, gradient_bytes: int) -> int:
    """Give the bytes of gradients in the type of the parameters, which the optimizer finds."""
    numbers = recipe_of(profile, Training())
    return gradient_bytes // numbers.compute * numbers.parameter


def check(request: PlanRequest, profile: Profile) -> None:
    """Refuse numbers that the profile's step did not have, and mixed ones without shards."""
    shards, asked = spread_of(request.parallelism).shards, request.training.precision
    if not is_mixed(profile):
        if profile.precision:
            raise InvalidRequestError(
                f"{profile.precision.name} is none of a profile's precisions; only "
                "FP32_BF16_COMPUTE is run in place of the model's own",
                field="profile.precision",
            )
        if shards > 1 and asked is Precision.FP32_BF16_COMPUTE:
            raise InvalidRequestError(
                "the profile is of the step as the model computes it; plan the workload itself "
                "(--workload), or profile it with precision FP32_BF16_COMPUTE in Python",
                field="training.precision",
            )
        return
    if shards == 1:
        raise InvalidRequestError(
            "the profile is of FSDP2's mixed precision, which needs shards; give FSDP2 on several "
            "ranks (--gpus N --fsdp), or profile the step as the model computes it",
            field="parallelism.world_size",
        )
    if asked not in (Precision.UNSPECIFIED, profile.precision):
        raise InvalidRequestError(
            f"{asked.name} is asked for, and the profile's step ran with {profile.precision.name}; "
            "leave it out",
            field="training.precision",
        )
    if request.training.reduce_type not in _REDUCED:
        raise InvalidRequestError(
            f"reductions in {request.training.reduce_type.name} are not planned; give FP32 or BF16",
            field="training.reduce_type",
        )


def said(profile: Profile, training: Training) -> str:
    """Say which numbers ranks gather and reduce."""
    if not is_mixed(profile):
        return "number types: the profile's own, for gathers and reductions too"
    reduced = reduce_type_of(profile, training).name.lower()
    return (
        "number types: shards, their gradients and the optimizer in fp32, gathered and computed "
        f"with in bf16, reduced in {reduced}"
    )
