"""The Pareto-list sweep behind ``haversack_kernels.ceiling``: block by block, exact in bytes.

A state is what the blocks so far retain and what they cost; of all prefixes with no more of both
only one is kept, so a block's states are sorted: more retained, less extra. Each option shifts the
list of the states at or below its ceiling, and the shifted lists are merged.

A state is dropped when even the *outlook* on the remaining blocks cannot bring it to the best known
plan: a bound that is linear in the retained bytes (``haversack_kernels.prices``). If a list is
still longer than ``width``, the leanest state and those of best outlook are kept, and the outlook
of the others bounds the answer from below.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportArgumentType=false

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Float64, Int64, Signals, jit
from haversack_kernels._select import nth_smallest
from haversack_kernels.pareto import (
    Options,
    States,
    Trail,
    count_up_to,
    extend,
    new_states,
    new_trail,
    outlook_on,
    with_nodes,
    with_space,
)

DONE, STOPPED, CANCELLED = range(3)

NOTHING_LEFT_OUT = MAX_INT64


class Table(NamedTuple):
    """Hold the options of block ``j`` at ``offsets[j]:offsets[j + 1]``, with their ceilings."""

    offsets: Int64
    retained: Int64
    extra: Int64
    ceiling: Int64


class Outlook(NamedTuple):
    """Bound what blocks ``j`` on still cost after ``u`` retained: ``fixed[j] + price[j] * u``."""

    fixed: Float64
    price: Float64


class Sweep(NamedTuple):
    """Say what one sweep found: no ``options`` if no state was left at the end.

    ``left_out`` is the least extra that any state left out could lead to.
    """

    options: Int64
    extra: int
    left_out: int
    status: int
    states: int


@jit
def leanest(table: Table, others: int) -> tuple[Int64, int]:
    """Take the least retaining allowed option of every block; return options and extra.

    Whatever any plan can do after a block, the leanest prefix can do too: so if this finds no
    option at some block (extra -1), no plan is feasible.

    With ``others`` microbatches in flight all retained bytes count that many times more at every
    ceiling. They are at least what the leanest plan retains under ceilings without them, so at
    least what it retains under ceilings lowered by that, and so on until nothing changes.
    """
    total = 0
    while True:
        options, extra, retained = _leanest_below(table, others * total)
        if extra < 0 or others == 0 or retained <= total:
            return options, extra
        total = retained


@jit
def _leanest_below(table: Table, lowered: int) -> tuple[Int64, int, int]:
    """Return the leanest options under ceilings lowered by so much, extra (or -1) and retained."""
    offsets, prefix, extra = table.offsets, 0, 0
    options = np.full(offsets.size - 1, -1)
    for block in range(options.size):
        least = -1
        for option in range(offsets[block], offsets[block + 1]):
            if prefix + lowered <= table.ceiling[option] and (
                least < 0 or table.retained[option] < table.retained[least]
            ):
                least = option
        if least < 0:
            return options, -1, prefix
        options[block] = least
        prefix += table.retained[least]
        extra += table.extra[least]
    return options, extra, prefix


@jit
def sweep(
    table: Table,
    outlook: Outlook,
    most_extra: int,
    width: int,
    state_limit: int,
    signals: Signals,
) -> Sweep:
    """Extend the list block by block, dropping what cannot end at or below ``most_extra``."""
    blocks = table.offsets.size - 1
    states, count, spare = new_states(1), 1, new_states(64)
    states.retained[0] = states.extra[0] = 0
    trail, first, nodes = new_trail(64), -1, 0
    left_out, looked, none = NOTHING_LEFT_OUT, 0, np.zeros(0, np.int64)
    for block in range(blocks):
        options = table.offsets[block + 1] - table.offsets[block]
        if signals.cancel[0] != 0 or looked + options * count > state_limit:
            status = CANCELLED if signals.cancel[0] != 0 else STOPPED
            return Sweep(none, -1, 0, status, looked)
        looked += options * count
        signals.steps[0] += 1
        spare = with_space(spare, options * count)
        fixed, price = outlook.fixed[block + 1], outlook.price[block + 1]
        allowed = _options(table, block, states, count)
        count = extend(allowed, states, first, fixed, price, most_extra, spare)
        if count > width:
            left_out = min(left_out, _thin(spare, count, width, fixed, price))
            count = width
        if count == 0:
            return Sweep(none, -1, left_out, DONE, looked)
        trail = with_nodes(trail, nodes, count)
        for i in range(count):
            trail.option[nodes + i], trail.parent[nodes + i] = spare.option[i], spare.parent[i]
        first, nodes = nodes, nodes + count
        states, spare = spare, states
    plan = _trace(trail, first + count - 1, blocks)
    return Sweep(plan, states.extra[count - 1], left_out, DONE, looked)


@jit
def _options(table: Table, block: int, states: States, count: int) -> Options:
    start, end = table.offsets[block], table.offsets[block + 1]
    none, stop = np.zeros(end - start, np.int64), np.empty(end - start, np.int64)
    for k in range(end - start):
        stop[k] = count_up_to(states.retained, count, table.ceiling[start + k])
    return Options(
        table.retained[start:end], table.extra[start:end], none, none.copy(), stop, start
    )


@jit
def _thin(states: States, count: int, width: int, fixed: float, price: float) -> int:
    """Keep the leanest state and the ``width - 1`` of best outlook; bound the others' extra."""
    promise = states.extra[:count] + (fixed + price * states.retained[:count])
    worst = nth_smallest(promise.copy(), width - 1)
    left_out, kept = NOTHING_LEFT_OUT, 0
    for i in range(count):
        if i == 0 or (promise[i] <= worst and kept < width):
            states.retained[kept], states.extra[kept] = states.retained[i], states.extra[i]
            states.option[kept], states.parent[kept] = states.option[i], states.parent[i]
            kept += 1
        else:
            more = outlook_on(fixed, price, states.retained[i])
            left_out = min(left_out, states.extra[i] + min(more, MAX_INT64 - states.extra[i]))
    return left_out


@jit
def _trace(trail: Trail, node: int, blocks: int) -> Int64:
    """Read the options that lead to ``node``, last block first."""
    options = np.empty(blocks, np.int64)
    for block in range(blocks - 1, -1, -1):
        options[block] = trail.option[node]
        node = trail.parent[node]
    return options
