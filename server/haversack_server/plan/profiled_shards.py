"""A profiled chain on a rank: what is gathered, reduced and divided as bases; microbatches.

Ranks are alike but for padding; rank 0, which has the largest shards, is meant. Knows no options
but to raise their peaks to what gathers and reductions need.
"""

from dataclasses import replace
from itertools import accumulate

from haversack.parallelism import Parallelism
from haversack.profile import Profile
from haversack.spread import spread_of
from haversack_server.memory.degrees import resolve
from haversack_server.memory.recipe import Recipe
from haversack_server.plan.divided import Divided
from haversack_server.plan.laid_units import Laid
from haversack_server.plan.profiled_chain import ProfiledChain
from haversack_server.plan.profiled_replicas import on_one_replica
from haversack_server.plan.sharded_segments import inside_of_rank


def on_one_rank(
    chain: ProfiledChain,
    profile: Profile,
    parallelism: Parallelism,
    *,
    recipe: Recipe,
    moments_bytes: int,
    accumulation: int,
) -> ProfiledChain:
    """Give the chain of rank 0, and of a microbatch that finds an output of the one before.

    ``recipe`` has the widths of numbers; ``moments_bytes`` are those of the optimizer that the
    chain stands with. On one rank with one microbatch the chain is the same. Raises
    InvalidRequestError for a block whose parameters cannot be divided.
    """
    spread = spread_of(parallelism)
    if accumulation > 1:
        chain = _beside_an_output(chain, profile)
    if spread.is_replicated:
        chain = on_one_replica(chain, profile, parallelism)
    elif spread.shards > 1:
        chain = _sharded(
            chain,
            profile,
            parallelism,
            recipe=recipe,
            moments_bytes=moments_bytes,
            accumulation=accumulation,
        )
    if accumulation == 1:
        return chain
    # The last part's is in its options: what its caller computes comes when one output is gone.
    made = [*accumulate(block.held_by_caller_bytes for block in profile.blocks[:-1]), 0]
    beside = zip(chain.forward_gradients, made, strict=True)
    return replace(chain, forward_gradients=tuple(map(sum, beside)))


def _sharded(
    chain: ProfiledChain,
    profile: Profile,
    parallelism: Parallelism,
    *,
    recipe: Recipe,
    moments_bytes: int,
    accumulation: int,
) -> ProfiledChain:
    degrees = resolve(parallelism)
    states = Divided(profile, degrees.shard_ranks, recipe.parameter)
    laid = Laid(profile, states, degrees, parallelism, recipe, accumulation)
    # Arguments are whole on every rank, and so are the gradients that they ask for.
    of_parameters = states.trained_bytes // recipe.parameter * recipe.compute
    of_arguments = max(0, chain.all_gradients - of_parameters)
    return replace(
        chain,
        options=laid.edged(chain.options, profile),
        standing_bytes=chain.standing_bytes
        - (states.whole_bytes - states.shard_bytes)
        - (moments_bytes - states.of_state(moments_bytes)),
        forward_gradients=laid.forward(),
        gradients_before=laid.backward(),
        all_gradients=states.trained_shard_bytes + of_arguments,
        step_bytes=states.of_step(chain.step_bytes),
        beside="gathered parameters, gradients and their reductions",
        inside=inside_of_rank(chain.inside, laid, profile),
        skips=(),
    )


def _beside_an_output(chain: ProfiledChain, profile: Profile) -> ProfiledChain:
    """Raise the last part's forward: an earlier microbatch's output is there until it returns."""
    last, peak = chain.options[-1], profile.model_forward_peak_bytes
    raised = tuple(
        replace(
            each,
            forward_peak_bytes=max(
                each.forward_peak_bytes,
                profile.held_by_caller_bytes + (each.forward_peak_bytes if peak is None else peak),
            ),
        )
        for each in last
    )
    return replace(chain, options=(*chain.options[:-1], raised))
