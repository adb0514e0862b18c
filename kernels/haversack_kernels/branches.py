"""Splits a knapsack in two where one list of states is too long: a run is held above or below.

Where a few candidates are far larger than the rest, the densest that does not fit leaves much room,
and bounds that fill it at the density of the break are weak. With that run held at its copies that
fit, or at one more, either half has a break of its own, and mostly is proven at a look: branch and
bound on the run that is cut (Land and Doig 1960), each node a search of the core. Where gains
follow sizes no half is better bounded than the whole, which a few nodes show.

Knows nothing of states or of the order in which they are looked at.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import Int64, Signals
from haversack_kernels.bounds import Quota
from haversack_kernels.core import ALL, CANCELLED, PROVEN, STOPPED, Outcome, expand

STATES, STATES_PER_RUN = 1 << 13, 4
"""States looked at in a node."""

PATIENCE = 8
"""Nodes after which half of the gap has to be closed; after n times as many, all but 1 / 2n."""


class _Node(NamedTuple):
    """Hold the copies of each run that are taken for good, and how many more may be."""

    taken: Int64
    copies: Int64


def search(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    found: Outcome,
    state_limit: int,
    signals: Signals,
) -> Outcome:
    """Close the gap of ``found``, or a part of it; past ``state_limit`` in all begin no node.

    Arrays are those of ``phases.search``.
    """
    whole, nodes = found.upper_bound - found.gain, 0
    root = _Node(np.zeros_like(copies), copies)
    open_nodes = [(-found.upper_bound, nodes, root)]  # the highest bound first
    while open_nodes and -open_nodes[0][0] > found.gain:
        gap = -open_nodes[0][0] - found.gain
        hopeless = nodes >= PATIENCE and 2 * nodes * gap > PATIENCE * whole
        if hopeless or found.states >= state_limit:
            break
        bound, _, node = heappop(open_nodes)
        for half in _halves(node, size, capacity):
            nodes += 1
            more = _solved(half, size, gain, capacity, signals)
            best = max(found, more, key=lambda outcome: outcome.gain)
            found = best._replace(states=found.states + more.states, status=STOPPED)
            if more.status == CANCELLED:
                return found._replace(status=CANCELLED)
            if more.status != PROVEN:
                heappush(open_nodes, (max(bound, -more.upper_bound), nodes, half))
    left = max([found.gain, *(-bound for bound, _, _ in open_nodes[:1])])
    return found._replace(upper_bound=left, status=PROVEN if left == found.gain else STOPPED)


def _halves(node: _Node, size: Int64, capacity: int) -> Iterator[_Node]:
    """Hold the run that the room cuts at as many copies as fit, and at one more if that fits.

    Found in floats: any run and any number of its copies would do.
    """
    room = capacity - int((node.taken * size).sum())
    reached = np.cumsum(node.copies * size.astype(np.float64))
    run = int(np.argmax((reached > room) & (node.copies > 0)))
    before = reached[run] - float(node.copies[run]) * float(size[run])
    fits = min(max(int((room - before) / size[run]), 0), int(node.copies[run]) - 1)
    if fits < 0:
        return
    fewer = node.copies.copy()
    fewer[run] = fits
    yield _Node(node.taken, fewer)
    if (fits + 1) * int(size[run]) <= room:
        taken, left = node.taken.copy(), node.copies.copy()
        taken[run] += fits + 1
        left[run] -= fits + 1
        yield _Node(taken, left)


def _solved(node: _Node, size: Int64, gain: Int64, capacity: int, signals: Signals) -> Outcome:
    """Search what a node leaves open; the gain and the bound count what it has taken."""
    room, taken_gain = capacity - int((node.taken * size).sum()), int((node.taken * gain).sum())
    copies = np.minimum(node.copies, room // size)
    kept = np.flatnonzero(copies)
    if kept.size == 0:
        return Outcome(node.taken, taken_gain, taken_gain, PROVEN, 0)
    more = expand(
        size[kept],
        gain[kept],
        copies[kept],
        room,
        np.arange(kept.size),
        Quota(0, 0),
        np.zeros(kept.size, np.int64),
        STATES + STATES_PER_RUN * kept.size,
        ALL,
        signals,
    )
    taken = node.taken.copy()
    taken[kept] += more.taken
    bound = taken_gain + max(more.upper_bound, more.gain)
    return Outcome(taken, taken_gain + more.gain, bound, more.status, more.states)
