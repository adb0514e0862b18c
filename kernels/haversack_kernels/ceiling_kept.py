"""What a plan within a bound may still take: fewer options, and so a shorter chain to sweep.

A plan with another option than its block's cheapest, at the prices of ``haversack_kernels.prices``,
costs as much more than the bound as that option. Near the bound most blocks have one option left,
and those after a block that has more are joined to it. Knows nothing of lists.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportReturnType=false

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import Int64, jit
from haversack_kernels.prices import ULP, cheapest
from haversack_kernels.sweep import Outlook, Table


class Kept(NamedTuple):
    """Hold a shorter chain: the options that may still be taken, and what its blocks stand for.

    Block ``k`` stands for blocks ``first[k]`` up to ``first[k + 1]``, of which all but the first
    have one option left, ``row[block]``. Its own options are rows ``option_row`` of the first.
    """

    table: Table
    outlook: Outlook
    first: Int64
    option_row: Int64
    row: Int64


@jit
def within(table: Table, outlook: Outlook, most: int) -> Kept:
    """Keep the options that a plan of at most ``most`` extra may take.

    A plan with another option costs as much more than the bound as that option than its block's
    cheapest. A block without any option left ends the sweep: then there is no such plan.
    """
    blocks, used, ends = table.offsets.size - 1, 0, 0
    rows, row = np.empty(table.retained.size, np.int64), np.empty(blocks, np.int64)
    offsets, first = np.zeros(blocks + 1, np.int64), np.empty(blocks + 1, np.int64)
    kept = Table(offsets, table.retained.copy(), table.extra.copy(), table.ceiling.copy())
    for block in range(blocks):
        left = _list_within(table, outlook, most, block, rows, used)
        if left == 1 and block > 0:
            row[block] = rows[used]
            _append_only(kept, offsets[ends - 1], offsets[ends], table, rows[used])
            continue
        first[ends] = block
        for option in range(used, used + left):
            kept.retained[option] = table.retained[rows[option]]
            kept.extra[option], kept.ceiling[option] = (
                table.extra[rows[option]],
                table.ceiling[rows[option]],
            )
        used, ends = used + left, ends + 1
        offsets[ends] = used
    first[ends] = blocks
    first = first[: ends + 1]
    kept = Table(offsets[: ends + 1], kept.retained[:used], kept.extra[:used], kept.ceiling[:used])
    return Kept(kept, Outlook(outlook.fixed[first], outlook.price[first]), first, rows[:used], row)


@jit
def _list_within(
    table: Table, outlook: Outlook, most: int, block: int, rows: Int64, used: int
) -> int:
    """Write the options of the block that may be taken to ``rows``; return how many there are."""
    after = outlook.price[block + 1]
    price, count = outlook.price[block] - after, 0
    least, _, size = cheapest(table, block, price, after)
    slack = most - outlook.fixed[0] + 64 * ULP * (size + abs(most))
    for option in range(table.offsets[block], table.offsets[block + 1]):
        cost = table.extra[option] + table.retained[option] * after
        if table.ceiling[option] >= 0 and cost - price * table.ceiling[option] - least <= slack:
            rows[used + count] = option
            count += 1
    return count


@jit
def _append_only(kept: Table, start: int, end: int, table: Table, only: int) -> None:
    """Let options ``start`` to ``end`` be followed by the only option of the next block."""
    for option in range(start, end):
        below = table.ceiling[only] - kept.retained[option]
        kept.ceiling[option] = min(kept.ceiling[option], below)
        kept.retained[option] += table.retained[only]
        kept.extra[option] += table.extra[only]


@jit
def plan_of(kept: Kept, options: Int64) -> Int64:
    """Return the rows of the whole chain that these options of the shorter one stand for."""
    plan = kept.row.copy()
    for k in range(options.size):
        plan[kept.first[k]] = kept.option_row[options[k]]
    return plan


@jit
def is_allowed(table: Table, plan: Int64) -> bool:
    """Tell whether every option of the plan is at or below its ceiling."""
    prefix, allowed = 0, True
    for option in plan:
        allowed = allowed and prefix <= table.ceiling[option]
        prefix += table.retained[option]
    return allowed
