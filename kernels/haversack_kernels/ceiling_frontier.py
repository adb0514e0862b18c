"""The sweep for all budgets at once of ``haversack_kernels.ceiling``: from the last block back.

What the blocks from one on need, at least, is what their own prefix does not know: the least budget
left for them. So a state is that need and the extra, and an option before it makes of them
    need = max(the option's own need, retained + need)       extra = extra + the option's
Nothing in it depends on a budget: the states that no other beats in both, at the first block, are
the frontier. The lists are those of ``haversack_kernels.pareto``, and longer than for one budget,
for nothing bounds them but the largest budget asked for.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportArgumentType=false

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Int64, Signals, jit
from haversack_kernels.pareto import (
    Options,
    States,
    Trail,
    count_up_to,
    extend,
    new_states,
    new_trail,
    with_nodes,
    with_space,
)
from haversack_kernels.sweep import CANCELLED, DONE, STOPPED

NO_NEED = -(2**62) - 2**61
"""What no blocks need: with all that is retained added, still below what any option needs."""


class Chain(NamedTuple):
    """Hold the options of block ``j`` at ``offsets[j]:offsets[j + 1]``, with all they need but the
    prefix."""

    offsets: Int64
    retained: Int64
    extra: Int64
    need: Int64


class Frontier(NamedTuple):
    """Hold the plans that no other beats: ``peak`` rises, ``extra`` falls.

    ``node`` is where the trail of a plan starts, first block first.
    """

    peak: Int64
    extra: Int64
    node: Int64
    trail: Trail
    status: int
    states: int


@jit
def frontier(chain: Chain, most: int, state_limit: int, signals: Signals) -> Frontier:
    """List the plans that no other beats in peak and extra, of peaks up to ``most``."""
    blocks = chain.offsets.size - 1
    states, count, spare = new_states(1), 1, new_states(64)
    states.retained[0], states.extra[0] = NO_NEED, 0
    trail, first, nodes, looked = new_trail(64), -1, 0, 0
    room, status = _room(chain, most), DONE
    for block in range(blocks - 1, -1, -1):
        options = chain.offsets[block + 1] - chain.offsets[block]
        if signals.cancel[0] != 0 or looked + options * count > state_limit:
            status, count = CANCELLED if signals.cancel[0] != 0 else STOPPED, 0
            break
        looked += options * count
        signals.steps[0] += 1
        spare = with_space(spare, options * count)
        followed = _options(chain, block, states, count, room[block])
        count = extend(followed, states, first, 0.0, 0.0, MAX_INT64, spare)
        trail = with_nodes(trail, nodes, count)
        for i in range(count):
            trail.option[nodes + i], trail.parent[nodes + i] = spare.option[i], spare.parent[i]
        first, nodes = nodes, nodes + count
        states, spare = spare, states
    ends = first + np.arange(count)
    return Frontier(states.retained[:count], states.extra[:count], ends, trail, status, looked)


@jit
def _room(chain: Chain, most: int) -> Int64:
    """Return what is left of ``most`` for each block and those after it by the leanest prefix."""
    room = np.empty(chain.offsets.size - 1, np.int64)
    for block in range(room.size):
        room[block] = most
        least = MAX_INT64
        for option in range(chain.offsets[block], chain.offsets[block + 1]):
            least = min(least, chain.retained[option])
        most -= least
    return room


@jit
def _options(chain: Chain, block: int, states: States, count: int, room: int) -> Options:
    """Return the options of the block, each with the states that it may come before.

    Of states that an option needs more than, the one of least extra is the last.
    """
    start, end = chain.offsets[block], chain.offsets[block + 1]
    head, stop = np.empty(end - start, np.int64), np.empty(end - start, np.int64)
    for k in range(end - start):
        need, retained = chain.need[start + k], chain.retained[start + k]
        below = count_up_to(states.retained, count, need - retained)
        head[k] = max(below - 1, 0)
        stop[k] = count_up_to(states.retained, count, room - retained) if need <= room else 0
    return Options(
        chain.retained[start:end], chain.extra[start:end], chain.need[start:end], head, stop, start
    )


@jit
def plan_at(trail: Trail, node: int, blocks: int) -> Int64:
    """Read the options of the plan whose trail starts at ``node``."""
    options = np.empty(blocks, np.int64)
    for block in range(blocks):
        options[block] = trail.option[node]
        node = trail.parent[node]
    return options
