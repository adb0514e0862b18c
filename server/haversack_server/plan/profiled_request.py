"""What a profile's plan takes from the request, and what it refuses.

States are parameters, gradients and the optimizer's moments. A profile is of one rank as it ran; it
is planned for that, for replicas of it, or for FSDP2. Knows no rung.
"""

from dataclasses import replace

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.plan import BudgetConversion, PlanRequest
from haversack.profile import Profile
from haversack.run import BytesKind
from haversack.spread import spread_in_words, spread_of
from haversack.units import format_bytes
from haversack_server.memory.bounds import MOST
from haversack_server.plan import limits, profiled_replicas, profiled_settings, profiled_types
from haversack_server.plan.profiled_chain import ProfiledChain


def check(request: PlanRequest, profile: Profile) -> None:
    """Refuse a profile without blocks or options, and what needs more than one rank."""
    if not profile.blocks:
        raise InvalidRequestError("the profile has no blocks; profile a model", field="profile")
    for place, block in enumerate(profile.blocks):
        if not profile.tables[block.table].option:
            raise InvalidRequestError(
                f"{block.name} has no options; its table is empty",
                field=f"profile.tables[{block.table}]",
            )
        if any(other.name == block.name for other in profile.blocks[:place]):
            raise InvalidRequestError(
                f"{block.name} is there twice; a block has one name",
                field=f"profile.blocks[{place}].name",
            )
    profiled_types.check(request, profile)
    profiled_settings.check(request, is_mixed=profiled_types.is_mixed(profile))
    ranks = spread_of(request.parallelism).ranks
    if request.rank is not None and request.rank >= ranks:
        asked = "one rank, 0" if ranks == 1 else f"the ranks 0 to {ranks - 1}"
        raise InvalidRequestError(
            f"a profile is of {asked}; {request.rank} is none of its ranks", field="rank"
        )


def check_bounds(chain: ProfiledChain) -> None:
    """Refuse figures that sum to more than can be written."""
    most = chain.standing_bytes + 2 * chain.all_gradients + chain.step_bytes
    most += max(*chain.forward_gradients, *chain.gradients_before)
    for options in chain.options:
        most += max(
            max(each.retained_bytes, each.forward_peak_bytes, each.backward_peak_bytes)
            + each.extra_ns
            for each in options
        )
    for inside in chain.inside:
        if inside is not None:
            most += inside.segment_bytes + inside.peak_bytes + inside.forward_ns
            most += (inside.waiting_bytes or 0) + chain.region_bytes
    if most > MOST:
        raise InvalidRequestError(
            f"bytes and nanoseconds sum to {float(most):.3g}, more than can be written",
            field="profile",
        )


def check_least(peak_bytes: int) -> None:
    """Refuse a reserve so far below zero that a step would need less than nothing."""
    if peak_bytes < 0:
        raise InvalidRequestError(
            "with so much below zero a step would need less than nothing; profile the model anew",
            field="profile.workspace_bytes",
        )


def budget_of(request: PlanRequest) -> BudgetConversion:
    """Take the budget as allocated bytes; a profile has no margins."""
    budget = request.budget
    if budget is None:
        raise InvalidRequestError("a profile's plan needs a budget in bytes", field="budget")
    step = f"allocated bytes: {format_bytes(budget.bytes)}; the profile's figures, no margin"
    given = replace(budget, kind=BytesKind.ALLOCATED)
    return BudgetConversion(given=given, allocated_bytes=budget.bytes, steps=(step,))


def assumed(request: PlanRequest) -> tuple[str, ...]:
    """Say what the request left open."""
    budget, accumulation = request.budget, request.training.accumulation
    unsaid = budget is not None and budget.kind is BytesKind.UNSPECIFIED
    kind = ("budget: it limits allocated bytes",) if unsaid else ()
    one = ("accumulation: 1; gradients are made anew in each step",) if not accumulation else ()
    ranks = _ranks_said(request)
    return (*kind, *one, *_kept_free(request.profile), *ranks, *limits.assumed(request))


def _kept_free(profile: Profile | None) -> tuple[str, ...]:
    """Say what an earlier plan's step needed beyond its prediction."""
    if profile is None or profile.workspace_bytes <= 0:
        return ()
    how = "measured" if profile.basis is Basis.MEASURED else "run as a whole"
    return (f"{how}: {format_bytes(profile.workspace_bytes)} beyond the prediction are kept free",)


def _ranks_said(request: PlanRequest) -> tuple[str, ...]:
    """Say which rank is meant, and how the model is wrapped."""
    spread, profile = spread_of(request.parallelism), request.profile
    if spread.ranks == 1 and request.parallelism.sharding is Sharding.FSDP2:
        return ("ranks: one, so nothing is sharded; give the number of GPUs to shard over",)
    if spread.ranks == 1 or profile is None:
        return ()
    if spread.is_replicated:
        gradient_bytes = sum(block.gradient_bytes for block in profile.blocks)
        written = format_bytes(gradient_bytes)
        return profiled_replicas.said(request.parallelism, profile.device, written)
    return (
        f"ranks: {spread_in_words(request.parallelism)}; all are alike but for padding, and the "
        "plan is of rank 0, which has the largest shards",
        "units of fully_shard: the profile's blocks, and the model around them",
        profiled_types.said(profile, request.training),
    )
