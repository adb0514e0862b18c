"""What the search of ``haversack_kernels.core`` starts from, and the order in which it goes on.

The densest runs are taken until one does not fit: the break solution, close to the optimum. Runs
are cut into *chunks* of 1, 2, 4, ... copies, which are either taken or left out by it. The search
changes chunk after chunk, those nearest to the break's density first, on either side.

Where many chunks are as dense as the break, any of them may be changed at no loss, and what counts
is that their sizes differ by amounts of every scale, such that changing half of the first few fills
the room. Knows nothing of states.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportArgumentType=false

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._exact import at_least
from haversack_kernels._jit import Float64, Int64, jit
from haversack_kernels.bounds import Quota, Rates
from haversack_kernels.states import Change

SPREAD = 14
"""Pairs of chunks that are spread first where densities are equal: 2^28 ways to fill the room."""

GROWTH = 1.2


class Chunks(NamedTuple):
    """Hold chunks of ``copies`` of one ``run``; ``sign`` is -1 where taken, 1 where left out."""

    size: Int64
    gain: Int64
    run: Int64
    copies: Int64
    sign: Int64


class Core(NamedTuple):
    """Hold the break solution and the chunks in the order in which they are changed.

    ``base`` has shape ``(runs,)``: the copies taken. ``ahead`` has shape ``(4, chunks + 1)``: from
    each place on, the densest chunk left out and the least dense one taken, then the same with the
    copies' price taken off; -1 where there is none. ``removable`` is the size of what is taken from
    there on. Where ``sharp`` is false, only the priced densities bound what is ahead.
    """

    chunks: Chunks
    base: Int64
    room: int
    gain: int
    copies: int
    quota: Quota
    ahead: Int64
    removable: Int64
    sharp: bool


@jit
def new_core(
    size: Int64, gain: Int64, copies: Int64, order: Int64, capacity: int, quota: Quota
) -> Core:
    """Take runs in this order, densest first with the price of a copy taken off, and cut them."""
    base = np.zeros(size.size, np.int64)
    room = capacity
    for run in order:
        if gain[run] <= quota.price:
            break
        base[run] = min(copies[run], room // size[run])
        room -= base[run] * size[run]
        if base[run] < copies[run]:
            break
    chunks, taken, used = _chunks(size, gain, copies, order, base)
    chunks = _in_sequence(chunks, _sequence(chunks, taken, used, room, quota))
    ahead, removable = _ahead(chunks, quota)
    sharp = _brackets(chunks, ahead[0, 0], ahead[1, 0])
    total, count = 0, 0
    for run in range(size.size):
        total += base[run] * gain[run]
        count += base[run]
    return Core(chunks, base, room, total, count, quota, ahead, removable, sharp)


@jit
def _chunks(
    size: Int64, gain: Int64, copies: Int64, order: Int64, base: Int64
) -> tuple[Chunks, int, int]:
    """Cut what is taken, then what is left out, each in order; return the numbers of chunks."""
    most = 0
    for run in range(size.size):
        most += copies[run]
    chunks = _new_chunks(most)
    taken = _cut(size, gain, base, order, -1, chunks, 0)
    return chunks, taken, _cut(size, gain, copies - base, order, 1, chunks, taken)


@jit
def _new_chunks(space: int) -> Chunks:
    return Chunks(
        np.empty(space, np.int64),
        np.empty(space, np.int64),
        np.empty(space, np.int64),
        np.empty(space, np.int64),
        np.empty(space, np.int64),
    )


@jit
def _cut(
    size: Int64, gain: Int64, copies: Int64, order: Int64, sign: int, chunks: Chunks, used: int
) -> int:
    """Append chunks of 1, 2, 4, ... copies and a rest: together they form any number of copies."""
    for run in order:
        left, power = copies[run], 1
        while left > 0:
            chunk = min(power, left)
            chunks.size[used], chunks.gain[used] = size[run] * chunk, gain[run] * chunk
            chunks.run[used], chunks.copies[used], chunks.sign[used] = run, chunk, sign
            left -= chunk
            power *= 2
            used += 1
    return used


@jit
def _in_sequence(chunks: Chunks, sequence: Int64) -> Chunks:
    moved = _new_chunks(sequence.size)
    for to in range(sequence.size):
        at = sequence[to]
        moved.size[to], moved.gain[to] = chunks.size[at], chunks.gain[at]
        moved.run[to], moved.copies[to] = chunks.run[at], chunks.copies[at]
        moved.sign[to] = chunks.sign[at]
    return moved


@jit
def _sequence(chunks: Chunks, taken: int, count: int, room: int, quota: Quota) -> Int64:
    """List chunks from the break outwards, nearest density first; the first ``taken`` are taken."""
    density = np.empty(count)
    for at in range(count):
        paid = chunks.gain[at] - quota.price * chunks.copies[at]
        density[at] = paid / chunks.size[at]
    sequence, used = np.empty(count, np.int64), np.zeros(count, np.bool_)
    place = _spread(chunks.size, density, taken, room, quota, sequence, used)
    middle = density[taken] if taken < count else 0.0
    add, drop = taken, taken - 1
    while place < count:
        while add < count and used[add]:
            add += 1
        while drop >= 0 and used[drop]:
            drop -= 1
        above = density[drop] - middle if drop >= 0 else np.inf
        below = middle - density[add] if add < count else np.inf
        adds = below < above or (below == above and add - taken < taken - drop)
        sequence[place] = add if adds else drop
        used[sequence[place]] = True
        place += 1
    return sequence


@jit
def _spread(
    size: Int64,
    density: Float64,
    taken: int,
    room: int,
    quota: Quota,
    sequence: Int64,
    used: NDArray[np.bool_],
) -> int:
    """List pairs of equally dense chunks first, a stride apart; return how many chunks."""
    ties, place = _ties(density, taken), 0
    if ties > 1:
        stride = _stride(size, taken, ties, room, quota)
        for k in range(SPREAD):
            rank = int(k * stride)
            if rank < ties and not used[taken + rank]:
                sequence[place], sequence[place + 1] = taken + rank, taken - 1 - rank
                used[taken + rank] = used[taken - 1 - rank] = True
                place += 2
    return place


@jit
def _ties(density: Float64, taken: int) -> int:
    """Return how many chunks on either side of the break are exactly as dense as each other."""
    ties = 0
    while (
        ties < min(taken, density.size - taken)
        and density[taken + ties] == density[taken - 1 - ties] == density[taken]
    ):
        ties += 1
    return ties


@jit
def _stride(size: Int64, taken: int, ties: int, room: int, quota: Quota) -> float:
    """Return how far apart chunks are spread so that swapping half of the pairs fills the room.

    With a least number of copies the break solution is one short, and one that is over is changed.
    """
    wanted = 2 * (size[taken] - room if quota.price < 0 else room)
    best, least, stride = 1.0, np.inf, 1.0
    while stride < ties:
        reached, rank = 0, -1
        for k in range(SPREAD):
            if int(k * stride) >= ties:
                break
            if int(k * stride) > rank:
                rank = int(k * stride)
                reached += abs(size[taken + rank] - size[taken - 1 - rank])
        if abs(reached - wanted) < least:
            best, least = stride, float(abs(reached - wanted))
        stride *= GROWTH
    return best


@jit
def _ahead(chunks: Chunks, quota: Quota) -> tuple[Int64, Int64]:
    """Return ``Core.ahead`` and ``Core.removable``."""
    count = chunks.size.size
    ahead, removable = np.empty((4, count + 1), np.int64), np.zeros(count + 1, np.int64)
    for at in range(count - 1, -1, -1):
        removable[at] = removable[at + 1] + (chunks.size[at] if chunks.sign[at] < 0 else 0)
    for row in range(4):
        _list_extremes(chunks, 0 if row < 2 else quota.price, 1 if row % 2 == 0 else -1, ahead, row)
    return ahead, removable


@jit
def _list_extremes(chunks: Chunks, price: int, sign: int, ahead: Int64, row: int) -> None:
    """Write, per place, the densest chunk left out from there on, or the least dense taken."""
    size, found = chunks.size, -1
    ahead[row, size.size] = found
    for at in range(size.size - 1, -1, -1):
        if chunks.sign[at] == sign:
            paid = chunks.gain[at] - price * chunks.copies[at]
            found_paid = chunks.gain[found] - price * chunks.copies[found]
            if found < 0 or at_least(sign * paid, size[found], sign * found_paid, size[at]):
                found = at
        ahead[row, at] = found


@jit
def _brackets(chunks: Chunks, left_out: int, taken: int) -> bool:
    """Tell whether nothing left out is denser than anything taken."""
    if left_out < 0 or taken < 0:
        return True
    gain, size = chunks.gain, chunks.size
    return bool(at_least(gain[taken], size[left_out], gain[left_out], size[taken]))


@jit
def rates(core: Core, at: int) -> Rates:
    """Return what bounds the changes from this place on, or all changes for place 0."""
    chunks, price, ahead = core.chunks, core.quota.price, core.ahead
    fill_gain, fill_size = _rate(chunks, 0, ahead[0, at])
    free_gain, free_size = _rate(chunks, 0, ahead[1, at])
    if not core.sharp:  # zero over zero: a bound that drops nothing
        fill_gain = fill_size = free_gain = free_size = 0
    priced_fill_gain, priced_fill_size = _rate(chunks, price, ahead[2, at])
    priced_free_gain, priced_free_size = _rate(chunks, price, ahead[3, at])
    return Rates(
        fill_gain,
        fill_size,
        free_gain,
        free_size,
        priced_fill_gain,
        priced_fill_size,
        priced_free_gain,
        priced_free_size,
    )


@jit
def _rate(chunks: Chunks, price: int, at: int) -> tuple[int, int]:
    """Return the gain and size of a chunk, or of nothing: that leaves room empty at no loss."""
    if at < 0:
        return 0, 1
    return max(chunks.gain[at] - price * chunks.copies[at], 0), chunks.size[at]


@jit
def change(core: Core, at: int) -> Change:
    """Return what changing the chunk at this place does to a state."""
    chunks, sign = core.chunks, core.chunks.sign[at]
    return Change(at, sign * chunks.size[at], sign * chunks.gain[at], sign * chunks.copies[at])
