"""What the ceiling kernels are told: tables of options, blocks, groups and grids, for many chains.

Retained bytes are counted in slots of ``unit`` bytes, rounded up, and ceilings rounded down, so
that a plan that fits in slots fits in bytes. Knows no device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, Int64, column, natural
from haversack_kernels.columns import checked, sum_of_largest
from haversack_kernels.cuda.ceiling_kernels import (
    BEGIN,
    END,
    FILLED,
    HALO,
    NO_OPTION,
    ONE,
    SHARE_OF_ONE,
    START,
    THREADS,
    TILE,
    TOP,
)
from haversack_kernels.cuda.memory import TABLE_BYTES
from haversack_kernels.cuda.tiling import MOVE, Group, groups

READ_AGAIN = 1.5
"""Cost of reading a cell once more, from a cache, in units of work in shared memory: a guess."""


class Chain(NamedTuple):
    """Hold options: those of block ``j`` in the rows ``offsets[j]:offsets[j + 1]`` of the others.

    An option retains bytes, costs ``extra``, and is allowed after at most ``ceiling`` retained
    bytes, which may be negative.
    """

    offsets: Int64
    retained: Int64
    extra: Int64
    ceiling: Int64


class Slots(NamedTuple):
    """Hold a chain in slots. Before block ``j`` lie ``live[j]`` cells that can lead to a plan.

    ``widest`` is what the most retaining option of a block retains; ``exact`` that nothing was
    rounded.
    """

    offsets: Int64
    retained: Int64
    extra: Int64
    ceiling: Int64
    widest: Int64
    live: Int64
    exact: bool

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return self.widest.size

    @property
    def cells(self) -> int:
        """Return the cells of the widest row: the last one, for fewer and fewer prefixes die."""
        return int(self.live[-1])

    @property
    def size_bytes(self) -> int:
        """Return the device memory that rows, decisions and tables take."""
        rows = 2 * self.cells * int(np.dtype(cell_type([self])).itemsize)
        tables = TABLE_BYTES * (self.blocks + self.retained.size)
        return rows + sum(map(int, self.live[1:])) + tables


class Step(NamedTuple):
    """Hold the grids of a step, per problem: for one block, and for groups; and its size."""

    one_blocks: int
    tiles: int
    rows: int
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """Hold what the kernels read, columns as in ``ceiling_kernels``.

    ``spans`` has shape ``(problems, 2)``: the blocks of each. The row of problem ``p`` is
    ``cells[buffer[p], start[p]:]`` at the end.
    """

    dtype: Any
    options: Int64
    extras: NDArray[Any]
    blocks: Int64
    groups: Int64
    spans: Int64
    start: Int64
    buffer: Int64
    steps: list[Step]
    cells: int
    choices: int

    @property
    def never(self) -> Any:
        """Return the extra of a prefix that there is not, as a cell."""
        return np.dtype(self.dtype).type(np.iinfo(self.dtype).max)


def slotted(chain: Chain, unit: int) -> Slots | None:
    """Return the chain in slots of ``unit`` bytes; None if a block never has an option.

    Raises as ``ceiling.solve`` for columns that do not belong together.
    """
    none = np.zeros_like(chain.retained)
    columns = checked(chain.offsets, chain.retained, none, none)
    offsets, retained = columns.offsets, columns.retained
    extra = columns.per_option("extra", natural("extra", chain.extra))
    ceiling = columns.per_option("ceiling", column("ceiling", chain.ceiling))
    if not 1 <= unit <= MAX_INT64:
        raise ValueError(f"unit {unit} is not between 1 and 2^63-1")
    if np.diff(offsets).max(initial=0) > NO_OPTION:
        raise ValueError(f"a block has more than {NO_OPTION} options: leave out dominated ones")
    sum_of_largest("extra", extra, offsets, MAX_INT64 - 1)
    slots, most = -(-retained // unit), ceiling // unit
    highest = np.maximum.reduceat(most, offsets[:-1]) if most.size else most
    if highest.min(initial=0) < 0:
        return None
    widest = np.maximum.reduceat(slots, offsets[:-1]) if slots.size else slots
    live = _live(highest, widest)
    ceilings = np.minimum(most, np.repeat(live[:-1] - 1, np.diff(offsets)))
    exact = not (retained % unit).any()
    return Slots(offsets, slots, extra, ceilings, widest, live, exact)


def _live(highest: Int64, widest: Int64) -> Int64:
    """Return how many cells lie before every block, and after the last, that lead anywhere.

    What is retained never shrinks, so a prefix above any later block's highest ceiling is dead.
    """
    bound = np.minimum.accumulate(highest[::-1])[::-1]
    live = [1]
    for j, wide in enumerate(widest):
        reached = live[-1] - 1 + int(wide)
        live.append((min(reached, int(bound[j + 1])) if j + 1 < bound.size else reached) + 1)
    return np.array(live, dtype=np.int64)


def cell_type(chains: Sequence[Slots]) -> Any:
    """Return int32 while it holds the extra of every plan and one more value, else int64."""
    most = max(
        sum_of_largest("extra", chain.extra, chain.offsets, MAX_INT64 - 1) for chain in chains
    )
    return np.int32 if most < 2**31 - 1 else np.int64


def tabled(chains: Sequence[Slots], *, fuse: bool) -> Tables:
    """Return the tables of chains of at least one block each."""
    begins = np.cumsum([0, *(chain.blocks for chain in chains)])
    options = np.cumsum([0, *(chain.retained.size for chain in chains)])
    start = np.cumsum([0, *(chain.cells for chain in chains)])
    cells = np.concatenate([chain.live[1:] for chain in chains])
    blocks = np.stack(
        [
            np.concatenate([c.offsets[:-1] + o for c, o in zip(chains, options, strict=False)]),
            np.concatenate([c.offsets[1:] + o for c, o in zip(chains, options, strict=False)]),
            np.concatenate([chain.widest for chain in chains]),
            np.cumsum(cells) - cells,
            cells,
        ],
        axis=1,
    )
    cut = [_groups(chain, fuse) for chain in chains]
    table, steps = _steps(chains, cut, begins, start)
    dtype = cell_type(chains)
    return Tables(
        dtype=dtype,
        options=np.concatenate([np.stack([c.retained, c.ceiling], axis=1) for c in chains]),
        extras=np.concatenate([chain.extra for chain in chains]).astype(dtype),
        blocks=blocks,
        groups=table,
        spans=np.stack([begins[:-1], begins[1:]], axis=1),
        start=start[:-1],
        buffer=np.array([len(groups) & 1 for groups in cut]),
        steps=steps,
        cells=int(start[-1]),
        choices=int(cells.sum()),
    )


def _groups(chain: Slots, fuse: bool) -> list[Group]:
    count = np.diff(chain.offsets).astype(np.float64)
    alone = READ_AGAIN * count + 2 * MOVE
    return groups(chain.widest, count, alone, chain.cells, TILE, fuse=fuse)


def _steps(
    chains: Sequence[Slots], cut: list[list[Group]], begins: Int64, start: Int64
) -> tuple[Int64, list[Step]]:
    """Return the table of groups, of shape ``(steps, problems, columns)``, and the steps."""
    table = np.zeros((max(map(len, cut)), len(cut), START + 1), dtype=np.int64)
    sums = np.zeros((4, table.shape[0]), dtype=np.int64)
    one_blocks, tiles, rows_done, cells = sums
    for p, (chain, own_groups) in enumerate(zip(chains, cut, strict=True)):
        begin, end, halo = np.array(
            [(g.begin, g.end, ONE if g.halo is None else g.halo) for g in own_groups]
        ).T
        steps, own = slice(len(own_groups)), table[: len(own_groups), p]
        top, alone = chain.live[end], halo == ONE
        own[:, BEGIN], own[:, END], own[:, HALO] = begins[p] + begin, begins[p] + end, halo
        own[1:, FILLED], own[:, TOP], own[:, START] = chain.live[begin[1:]], top, start[p]
        blocks = np.where(alone, -(-top // (THREADS * SHARE_OF_ONE)), 0)
        one_blocks[steps] = np.maximum(one_blocks[steps], blocks)
        parts = np.where(alone, 0, -(-top // (TILE - np.maximum(halo, 0))))
        tiles[steps] = np.maximum(tiles[steps], parts)
        rows_done[steps] += end - begin
        cells[steps] += np.add.reduceat(chain.live[1:], begin)
    return table, [Step(*each) for each in zip(*sums.tolist(), strict=True)]
