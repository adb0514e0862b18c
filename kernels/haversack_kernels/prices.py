"""Lower bounds for the sweep of ``haversack_kernels.sweep``: a Lagrange relaxation of the ceilings.

Block ``k`` may start with at most ceiling(option) retained before it. Instead of insisting, the
relaxation charges price[k] for every byte above and pays for every byte below. Then blocks decide
alone:
    cost of an option = extra + retained * (sum of prices after k) - price[k] * ceiling
and the sum of the least costs bounds every plan from below, whatever the prices are. Good prices
are found by subgradient steps of Polyak's length towards the best known plan.
"""

import numpy as np

from haversack_kernels._jit import CancelFlag, Float64, jit
from haversack_kernels.sweep import Outlook, Table

ROUNDS = 150
PATIENCE = 8  # rounds without progress before steps are halved
ULP = 2.0**-52


@jit
def outlook(table: Table, price: Float64) -> Outlook:
    """Bound the remaining cost from every block on, for given prices of shape ``(blocks,)``."""
    blocks = table.offsets.size - 1
    fixed, after = np.zeros(blocks + 1), np.zeros(blocks + 1)
    most_retained = float(table.ceiling.max()) if blocks else 0.0
    cost, magnitude = 0.0, 0.0
    for block in range(blocks - 1, -1, -1):
        least, _, size = _cheapest(table, block, price[block], after[block + 1])
        after[block] = after[block + 1] + price[block]
        cost += least
        magnitude += size
        # Every term and every partial sum may be rounded: about one ulp of the whole per block.
        rounding = ULP * (blocks + 16) * (magnitude + after[block] * most_retained)
        fixed[block] = cost - rounding
    return Outlook(fixed, after)


@jit
def _cheapest(table: Table, block: int, price: float, after: float) -> tuple[float, int, float]:
    """Return the least cost of an option of ``block``, that option, and the size of the terms.

    An option whose ceiling is negative is never allowed.
    """
    least, chosen, size = np.inf, -1, 0.0
    for option in range(table.offsets[block], table.offsets[block + 1]):
        if table.ceiling[option] < 0:
            continue
        paid, refund = table.retained[option] * after, price * table.ceiling[option]
        cost = table.extra[option] + paid - refund
        size = max(size, table.extra[option] + paid + (price + after) * table.ceiling[option])
        if cost < least:
            least, chosen = cost, option
    return least, chosen, size


@jit
def prices(table: Table, best_known: int, cancel: CancelFlag) -> Float64:
    """Return prices of shape ``(blocks,)`` whose bound from the start is as high as was found.

    Once ``cancel[0]`` is set they are just less good.
    """
    blocks = table.offsets.size - 1
    price, best, slope = np.zeros(blocks), np.zeros(blocks), np.zeros(blocks)
    best_bound, reach, stale = -np.inf, 1.0, 0
    for _ in range(ROUNDS):
        bound = _relax(table, price, slope)
        if bound > best_bound:
            best_bound, stale = bound, 0
            best = price.copy()
        else:
            stale += 1
            if stale == PATIENCE:
                stale, reach = 0, reach / 2
        norm = _norm(price, slope)
        if norm == 0.0 or bound >= best_known or cancel[0] != 0:
            break
        step = reach * (best_known - bound) / norm
        for block in range(blocks):
            price[block] = max(price[block] + step * slope[block], 0.0)
    return best


@jit
def _norm(price: Float64, slope: Float64) -> float:
    """Return the squared length of the slope where prices can follow it: they stay >= 0."""
    total = 0.0
    for block in range(price.size):
        if price[block] > 0.0 or slope[block] > 0.0:
            total += slope[block] * slope[block]
    return total


@jit
def _relax(table: Table, price: Float64, slope: Float64) -> float:
    """Return the bound at ``price`` and set ``slope``: retained less ceiling."""
    bound, after = 0.0, 0.0
    chosen = np.empty(price.size, np.int64)
    for block in range(price.size - 1, -1, -1):
        least, chosen[block], _ = _cheapest(table, block, price[block], after)
        bound += least
        after += price[block]
    prefix = 0.0
    for block in range(price.size):
        slope[block] = prefix - table.ceiling[chosen[block]]
        prefix += table.retained[chosen[block]]
    return bound
