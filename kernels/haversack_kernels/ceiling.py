"""Options for a chain of blocks at least extra cost, under ceilings on the bytes retained before.

Blocks run forward from 0 to n-1 and backward from n-1 to 0. A block's option retains bytes until
the block's backward is done, and adds a peak of its own while the block runs, so at block ``j``
    u = what the options of blocks 0..j-1 retain
    u + forward_peak <= forward_capacity[j]   and   u + backward_peak <= backward_capacity[j]
A 0/1 knapsack is the case of two options per block and one capacity. Exact in bytes; the work is
done in ``haversack_kernels.sweep``. Options are columns, those of block ``j`` in the rows
``offsets[j]:offsets[j + 1]``. Knows nothing of models, budgets or time.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels import prices, sweep
from haversack_kernels._jit import MAX_INT64, MOST_STATES, CancelFlag, Int64, column, flag, natural
from haversack_kernels.columns import MAX_BYTES, Columns, checked, sum_of_largest, within_bounds
from haversack_kernels.errors import SolveCancelled

DEFAULT_STATE_LIMIT = 1 << 23
"""States kept over all blocks: at most about 0.3 GB."""

FIRST_WIDTH = 1024
"""States per block in the first sweeps: they mostly suffice, or find a plan close to the best."""


class Choice(NamedTuple):
    """Say which option every block takes, what they cost together, and how sure that is.

    ``options`` has shape ``(blocks,)``: rows of the option columns. ``proven`` means that ``extra``
    is the least; else the least lies between ``lower_bound`` and ``extra``. That no plan is
    ``feasible`` is always proven; then ``options`` are -1, ``extra`` and ``lower_bound`` 0.
    """

    options: Int64
    extra: int
    lower_bound: int
    proven: bool
    feasible: bool


class Peak(NamedTuple):
    """Say how high the bytes rise, and at which block's forward or backward first."""

    peak: int
    block: int
    backward: bool


class Floor(NamedTuple):
    """Say the least peak of all plans, where it is, and the options of a plan that reaches it."""

    peak: int
    block: int
    backward: bool
    options: Int64


def solve(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    extra: Int64,
    forward_capacity: Int64,
    backward_capacity: Int64,
    *,
    state_limit: int = DEFAULT_STATE_LIMIT,
    cancel: CancelFlag | None = None,
) -> Choice:
    """Choose one option per block so that every ceiling holds and the sum of ``extra`` is least.

    ``offsets`` has shape ``(blocks + 1,)``, capacities ``(blocks,)`` and may be negative, the
    others ``(options,)``; ``retained`` and ``extra`` are >= 0. Of the plans of least extra the one
    that retains least is chosen, then, from the last block backwards, the lower option; unless a
    list of states outgrew its share of ``state_limit``: then the same arguments still give the same
    plan, and ``proven`` tells whether it is one of least extra.

    Raises ``OverflowError`` if sums may leave int64, ``SolveCancelled`` once ``cancel[0]`` is set.
    """
    chain = checked(offsets, retained, forward_peak, backward_peak)
    extra = chain.per_option("extra", natural("extra", extra))
    sum_of_largest("extra", extra, chain.offsets, MAX_INT64)
    forward = _within_reach(chain.spread("forward_capacity", forward_capacity))
    backward = _within_reach(chain.spread("backward_capacity", backward_capacity))
    ceilings = np.minimum(forward - chain.forward_peak, backward - chain.backward_peak)
    ceilings = np.minimum(ceilings, chain.all_retained)
    table = sweep.Table(chain.offsets, chain.retained, extra, ceilings)
    return _solve(table, state_limit, flag(cancel))


def _within_reach(capacity: Int64) -> Int64:
    # A capacity beyond two MAX_BYTES allows or forbids everything, and so does the nearest within.
    return np.clip(capacity, -2 * MAX_BYTES, 2 * MAX_BYTES)


def _solve(table: sweep.Table, state_limit: int, cancel: CancelFlag) -> Choice:
    if cancel[0]:
        raise SolveCancelled(0)
    options, extra = sweep.leanest(table)
    if extra < 0:
        return Choice(np.full_like(options, -1), 0, 0, proven=True, feasible=False)
    if options.size == 0:
        return Choice(options, 0, 0, proven=True, feasible=True)
    bound, states = 0, 0
    for width, priced in _sweeps(table, state_limit):
        price = prices.prices(table, extra, cancel) if priced else np.zeros(options.size)
        found = sweep.sweep(table, prices.outlook(table, price), extra, width, cancel)
        states += found.states
        if found.cancelled:
            raise SolveCancelled(states)
        if found.options.size == options.size and found.extra <= extra:
            options, extra = found.options, found.extra
        bound = max(bound, min(found.left_out, extra))
        if found.left_out > extra:
            break
    return Choice(options, extra, bound, proven=bound == extra, feasible=True)


def _sweeps(table: sweep.Table, state_limit: int) -> list[tuple[int, bool]]:
    """List the sweeps to try until one leaves nothing out: their width, and whether prices help.

    A quick one, the same with prices, and one as wide as the limit allows: a list and its successor
    before it is thinned, and a node per state and block.
    """
    widest = max(
        1,
        min(state_limit, MOST_STATES)
        // (table.offsets.size - 1 + int(np.diff(table.offsets).max())),
    )
    first = min(FIRST_WIDTH, widest)
    return [(first, False), (first, True), (widest, True)]


def floor(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    forward_base: Int64,
    backward_base: Int64,
    *,
    cancel: CancelFlag | None = None,
) -> Floor:
    """Find the least peak of all plans: no smaller budget is feasible, every larger one is.

    Bases have shape ``(blocks,)``: all other bytes at a block's forward and backward. For one
    budget the leanest prefix decides whether there is a plan, so the floor is found by halving.
    Raises ``ValueError`` if there is no block.
    """
    chain, stop = checked(offsets, retained, forward_peak, backward_peak), flag(cancel)
    if chain.blocks == 0:
        raise ValueError("there is no block, so there is no peak")
    need = np.maximum(*_needs(chain, forward_base, backward_base))
    low = int(np.minimum.reduceat(need, chain.offsets[:-1]).max())
    high = int(need.max()) + chain.all_retained
    while low < high:
        if stop[0]:
            raise SolveCancelled(0)
        middle = (low + high) // 2
        if _leanest_within(chain, need, middle)[1] < 0:
            low = middle + 1
        else:
            high = middle
    options, _ = _leanest_within(chain, need, low)
    return Floor(*_peak(chain, forward_base, backward_base, options), options)


def _leanest_within(chain: Columns, need: Int64, budget: int) -> tuple[Int64, int]:
    free = np.zeros_like(need)
    return sweep.leanest(sweep.Table(chain.offsets, chain.retained, free, budget - need))


def evaluate(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    forward_base: Int64,
    backward_base: Int64,
    options: Int64,
) -> Peak:
    """Return the peak of a plan: the highest of base + retained before + peak over all blocks.

    ``options`` has shape ``(blocks,)``: rows of the option columns. Of equal peaks the earliest is
    named: forward from block 0 up, then backward from the last block down.
    """
    chain = checked(offsets, retained, forward_peak, backward_peak)
    if chain.blocks == 0:
        raise ValueError("there is no block, so there is no peak")
    options = column("options", options)
    if options.size != chain.blocks:
        raise ValueError(f"options has {options.size} values for {chain.blocks} blocks")
    foreign = np.flatnonzero((options < chain.offsets[:-1]) | (options >= chain.offsets[1:]))
    if foreign.size:
        raise ValueError(f"options[{int(foreign[0])}] is no option of its block")
    return _peak(chain, forward_base, backward_base, options)


def _peak(chain: Columns, forward_base: Int64, backward_base: Int64, options: Int64) -> Peak:
    before = np.cumsum(chain.retained[options]) - chain.retained[options]
    forward, backward = (
        need[options] + before for need in _needs(chain, forward_base, backward_base)
    )
    moments = np.concatenate([forward, backward[::-1]])  # in the order of the step
    first = int(moments.argmax())
    if first < chain.blocks:
        return Peak(int(moments[first]), first, backward=False)
    return Peak(int(moments[first]), 2 * chain.blocks - 1 - first, backward=True)


def _needs(chain: Columns, forward_base: Int64, backward_base: Int64) -> tuple[Int64, Int64]:
    """Return, per option, all bytes but the prefix at the block's forward and at its backward."""
    forward = within_bounds("forward_base", chain.spread("forward_base", forward_base))
    backward = within_bounds("backward_base", chain.spread("backward_base", backward_base))
    return forward + chain.forward_peak, backward + chain.backward_peak
