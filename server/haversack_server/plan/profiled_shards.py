"""A profiled chain on one rank of several: FSDP2's gathers, gradients and reductions as bases.

Ranks are alike but for padding; rank 0, which has the largest shards, is meant. Knows no options
but to raise their peaks to what gathers and reductions need.
"""

from dataclasses import replace

from haversack.parallelism import Parallelism
from haversack.profile import Profile
from haversack_server.memory.degrees import resolve
from haversack_server.plan.divided import Divided
from haversack_server.plan.laid_units import Laid
from haversack_server.plan.profiled_chain import ProfiledChain


def on_one_rank(
    chain: ProfiledChain,
    profile: Profile,
    parallelism: Parallelism,
    *,
    moments_bytes: int,
    accumulation: int,
) -> ProfiledChain:
    """Give the chain of rank 0 under FSDP2; without several ranks it is the same.

    ``moments_bytes`` are those of the optimizer that the chain stands with.
    Segments are left out: their blocks would run before their weights are gathered. Raises
    InvalidRequestError for a block whose parameters cannot be divided.
    """
    degrees = resolve(parallelism)
    if degrees.shard_ranks == 1:
        return chain
    states = Divided(profile, degrees.shard_ranks)
    laid = Laid(profile, states, degrees, parallelism, accumulation)
    return replace(
        chain,
        options=laid.edged(chain.options, profile),
        standing_bytes=chain.standing_bytes
        - (states.whole_bytes - states.shard_bytes)
        - (moments_bytes - states.of_state(moments_bytes)),
        forward_gradients=laid.forward(),
        gradients_before=laid.backward(),
        all_gradients=states.trained_shard_bytes,
        step_bytes=states.of_step(chain.step_bytes),
        beside="gathered parameters, gradients and their reductions",
        inside=(None,) * len(chain.names),
    )
