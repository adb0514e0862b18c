"""Options for a chain of blocks at least extra cost, under ceilings on the bytes retained before.

Blocks run forward from 0 to n-1 and backward from n-1 to 0. A block's option retains bytes until
the block's backward is done, and adds a peak of its own while the block runs, so at block ``j``
    u = what the options of blocks 0..j-1 retain
    u + forward_peak <= forward_capacity[j]   and   u + backward_peak <= backward_capacity[j]
A 0/1 knapsack is the case of two options per block and one capacity. With ``in_flight`` of k
microbatches on a pipeline stage, all that the plan retains counts k - 1 times more at every block.
Exact in bytes; the work is done in ``haversack_kernels.ceiling_search`` and its neighbours. Options
are columns, those of block ``j`` in the rows ``offsets[j]:offsets[j + 1]``. Knows nothing of models
or time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haversack_kernels import ceiling_budgets, ceiling_floor, sweep
from haversack_kernels._jit import (
    MAX_INT64,
    MOST_STATES,
    CancelFlag,
    Int64,
    Signals,
    column,
    integer,
    natural,
    signals,
)
from haversack_kernels.ceiling_choice import Choice, searched
from haversack_kernels.columns import MAX_BYTES, Columns, checked, sum_of_largest
from haversack_kernels.errors import SolveCancelled

__all__ = [
    "DEFAULT_STATE_LIMIT",
    "Choice",
    "Floor",
    "Peak",
    "evaluate",
    "floor",
    "frontier",
    "solve",
    "solve_table",
    "table",
]

DEFAULT_STATE_LIMIT = 1 << 24
"""States looked at before the search settles for a bound: about 0.2 s and at most 0.3 GB."""


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
    in_flight: int = 1,
    state_limit: int = DEFAULT_STATE_LIMIT,
    cancel: CancelFlag | None = None,
    steps: Int64 | None = None,
) -> Choice:
    """Choose one option per block so that every ceiling holds and the sum of ``extra`` is least.

    ``offsets`` has shape ``(blocks + 1,)``, capacities ``(blocks,)`` and may be negative, the
    others ``(options,)``; ``retained`` and ``extra`` are >= 0. Of the plans of least extra the one
    that retains least is chosen, then, from the last block backwards, the lower option; unless
    there are several in flight or ``state_limit`` was reached: then the same arguments still give
    the same plan, and ``proven`` tells whether it is one of least extra.

    Raises ``OverflowError`` if sums may leave int64, ``SolveCancelled`` at the next list step once
    ``cancel[0]`` is set. ``steps``, one int64, counts the list steps begun.
    """
    in_flight = integer("in_flight", in_flight)
    chain = checked(offsets, retained, forward_peak, backward_peak, in_flight)
    chosen = table(chain, extra, forward_capacity, backward_capacity, in_flight)
    return solve_table(chosen, in_flight, state_limit, signals(cancel, steps))


def table(
    chain: Columns, extra: Int64, forward_capacity: Int64, backward_capacity: Int64, in_flight: int
) -> sweep.Table:
    """Return the options of checked columns with their ceilings."""
    extra = chain.per_option("extra", natural("extra", extra))
    sum_of_largest("extra", extra, chain.offsets, MAX_INT64)
    forward = _within_reach(chain.spread("forward_capacity", forward_capacity))
    backward = _within_reach(chain.spread("backward_capacity", backward_capacity))
    ceilings = np.minimum(forward - chain.forward_peak, backward - chain.backward_peak)
    ceilings = np.minimum(ceilings, in_flight * chain.all_retained)
    return sweep.Table(chain.offsets, chain.retained, extra, ceilings)


def _within_reach(capacity: Int64) -> Int64:
    # A capacity beyond two MAX_BYTES allows or forbids everything, and so does the nearest within.
    return np.clip(capacity, -2 * MAX_BYTES, 2 * MAX_BYTES)


def solve_table(options: sweep.Table, in_flight: int, state_limit: int, stop: Signals) -> Choice:
    """Choose as ``solve`` does, of options whose ceilings are known."""
    return searched(options, in_flight, state_limit, stop)[0]


def frontier(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    extra: Int64,
    forward_base: Int64,
    backward_base: Int64,
    budgets: Sequence[int],
    *,
    state_limit: int = DEFAULT_STATE_LIMIT,
    cancel: CancelFlag | None = None,
    steps: Int64 | None = None,
) -> tuple[Choice, ...]:
    """Choose options for every budget, each as ``solve`` would for ``budget - base``.

    All at once in one sweep where its lists stay short, else one after the other with a share of
    the states left each, and with what is left then once more where that proved nothing. A larger
    budget never gets a plan of more extra.
    """
    chain, stop = checked(offsets, retained, forward_peak, backward_peak), signals(cancel, steps)
    extra = chain.per_option("extra", natural("extra", extra))
    sum_of_largest("extra", extra, chain.offsets, MAX_INT64)
    need = np.maximum(*chain.needs(forward_base, backward_base))
    needs = sweep.Table(chain.offsets, chain.retained, extra, need)
    # A budget beyond two MAX_BYTES allows or forbids everything, and so does the nearest within.
    exact = [integer("budgets", budget) for budget in budgets]
    wanted = [max(-2 * MAX_BYTES, min(budget, 2 * MAX_BYTES)) for budget in exact]
    if not wanted:
        return ()
    limit = min(integer("state_limit", state_limit), MOST_STATES)
    return ceiling_budgets.choose(needs, wanted, limit, stop)


def floor(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    forward_base: Int64,
    backward_base: Int64,
    *,
    in_flight: int = 1,
    cancel: CancelFlag | None = None,
    steps: Int64 | None = None,
) -> Floor:
    """Find the least peak of all plans: no smaller budget is feasible, every larger one is.

    Bases have shape ``(blocks,)``: all other bytes at a block's forward and backward. Of the plans
    of that peak the one that retains least is given. Raises ``ValueError`` if there is no block,
    ``SolveCancelled`` at the next list step once ``cancel[0]`` is set; ``steps`` counts those
    begun.
    """
    in_flight, stop = integer("in_flight", in_flight), signals(cancel, steps)
    chain = checked(offsets, retained, forward_peak, backward_peak, in_flight)
    if chain.blocks == 0:
        raise ValueError("there is no block, so there is no peak")
    others, need = in_flight - 1, np.maximum(*chain.needs(forward_base, backward_base))
    needs = ceiling_floor.Needs(chain.offsets, chain.retained, need)
    least = ceiling_floor.least_peak(needs, others, stop)
    if least.status == sweep.CANCELLED:
        raise SolveCancelled(least.states)
    within = sweep.Table(chain.offsets, chain.retained, np.zeros_like(need), least.peak - need)
    options, _ = sweep.leanest(within, others)
    return Floor(*_peak(chain, forward_base, backward_base, options, others), options)


def evaluate(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    forward_base: Int64,
    backward_base: Int64,
    options: Int64,
    *,
    in_flight: int = 1,
) -> Peak:
    """Return the peak of a plan: the highest of base + retained before + peak over all blocks.

    ``options`` has shape ``(blocks,)``: rows of the option columns. Of equal peaks the earliest is
    named: forward from block 0 up, then backward from the last block down.
    """
    in_flight = integer("in_flight", in_flight)
    chain = checked(offsets, retained, forward_peak, backward_peak, in_flight)
    if chain.blocks == 0:
        raise ValueError("there is no block, so there is no peak")
    options = column("options", options)
    if options.size != chain.blocks:
        raise ValueError(f"options has {options.size} values for {chain.blocks} blocks")
    foreign = np.flatnonzero((options < chain.offsets[:-1]) | (options >= chain.offsets[1:]))
    if foreign.size:
        raise ValueError(f"options[{int(foreign[0])}] is no option of its block")
    return _peak(chain, forward_base, backward_base, options, in_flight - 1)


def _peak(
    chain: Columns, forward_base: Int64, backward_base: Int64, options: Int64, others: int
) -> Peak:
    retained = chain.retained[options]
    present = np.cumsum(retained) - retained + others * retained.sum()
    forward, backward = (
        need[options] + present for need in chain.needs(forward_base, backward_base)
    )
    moments = np.concatenate([forward, backward[::-1]])  # in the order of the step
    first = int(moments.argmax())
    if first < chain.blocks:
        return Peak(int(moments[first]), first, backward=False)
    return Peak(int(moments[first]), 2 * chain.blocks - 1 - first, backward=True)
