"""Options and segments for a chain of blocks at least extra time, within one budget of memory.

Rotor's recurrence (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for
heterogeneous chains", Inria RR-9302), with options, bases and gathered units.

A *schedule* is a row of nodes that covers the chain. A node is a block under one of its options,
whose tape is kept; or a segment of blocks i..j, run plainly under one checkpoint, with a row of
nodes for its backward that covers i..j, by options allowed ``inside``, and is not a segment i..j
again. All nodes run forward from the first, then backward from the last. A node holds bytes between
its two turns: a block what its option retains, a segment the boundary of its last block, which is
the input of what follows. In a segment's backward its nodes run forward from its input, then
backward from the last; a segment among them does the same when it is its turn.

*Moments.* Bytes at a moment are the base, what the nodes before hold, and
  first forward    forward_base of the running block; forward_peak of its option, or plain_peak in a
                   segment, with the boundary before it unless that is the segment's input
  block backward   backward_base of the block and backward_peak of its option
  forward again    backward_base of t, the block whose backward comes next; the boundary of t, whose
                   gradient waits; the running block's peak as in the first forward
and, in the backward of segment i..j and of the segments within, the gathered units of blocks i..t-1
(t is the running block in its own backward). The extra time is the extra of every block's option,
and plain_time for every forward again.

*Assumed.* A gradient is as large as its boundary, and peaks in backward contain the gradients of
the block's output and input. A node's output is freed once the backward of what follows it is done.
FSDP2 gathers one unit at a time in the first forward; in a segment's backward it keeps every
unit until the unit's own backward (seen with torch 2.13). Bases do not depend on the schedule, and
no tensor skips a block.

*Rounding.* What is held, and each gathered unit, is rounded up to slots by itself; the rest of a
moment is added in bytes and rounded up once; the budget is rounded down. The answer is the least
for this problem in slots, and in bytes where ``unit`` is 1; never above the budget. ``refine`` and
``lower_bound`` narrow what rounding costs, which is much where slots are as large as boundaries:
a unit that divides the sizes of equal blocks costs nothing.

*Recurrence.* again(s, e, m) is the least time with which blocks s..e-1 run again and backward in m
free slots, the least of
  time(s) + extra(o) + again(s+1, e, m - held(o))                        over options o inside
  time(s) + .. + time(c-1) + again(c, e, m - held(c)) + again(s, c, m)   over s < c < e
where every moment must fit: those of block s, or of the plain forward of s..c-1. step(j, m) is the
same for the first forward of blocks j on, over all options, with again(j, c, m) in a segment's
place. A segment that ends with the one around it never helps there, as it only adds a forward.

Solved in time (blocks^3 / 6) * slots and 4 * blocks^2 * (slots + 1) bytes; ranges of equal blocks
with equal bases share a row. Knows nothing of models, options' names or devices.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import CancelFlag, Int64, flag, integer
from haversack_kernels.arena import ArenaLimitError, Lease
from haversack_kernels.errors import SolveCancelled
from haversack_kernels.segments_columns import MOST_BYTES, Chain, Slots, checked, kinds, rounded
from haversack_kernels.segments_least import Ranges, enough, least_from, ranges
from haversack_kernels.segments_schedule import (
    Block,
    Nodes,
    Schedule,
    Segment,
    Tree,
    highest,
    infeasible,
    measured,
    show,
    tree,
)
from haversack_kernels.segments_table import fill, fill_first
from haversack_kernels.segments_trace import trace

__all__ = [
    "Block",
    "Chain",
    "Frontier",
    "Nodes",
    "Schedule",
    "Segment",
    "Tree",
    "floor",
    "frontier",
    "lower_bound",
    "measured",
    "show",
    "solve",
    "tree",
    "warm_up",
]

DEFAULT_ARENA_LIMIT_BYTES = 256 << 20
"""Largest table that is made unasked: 130 blocks need 35 MB for 500 slots."""


class Frontier(NamedTuple):
    """Hold the least extra of every budget in slots, from the floor to where more gains nothing."""

    slots: Int64
    extra: Int64


def solve(
    chain: Chain,
    budget: int,
    *,
    unit: int,
    refine: bool = True,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
) -> Schedule:
    """Find the schedule of least extra time whose every moment is within ``budget`` bytes.

    A slot has ``unit`` bytes. Of the schedules of least extra one that needs the fewest slots is
    taken; of these, at every node from the first on, that of the lower option, and of a segment
    only after all options, then of the shorter one.
    ``refine`` undoes much of the rounding: budgets of up to a slot per block more are solved too,
    their schedules added up in bytes, and the cheapest that is within ``budget`` is taken. A larger
    budget is never worse, with and without. Where no schedule is found there may still be one in
    bytes, above ``floor`` with unit 1: then a finer unit finds it.

    Raises ``ArenaLimitError`` if the table exceeds ``arena_limit_bytes``, ``OverflowError`` if sums
    may leave int64, ``SolveCancelled`` once ``cancel[0]`` is set.
    """
    chain, stop = checked(chain), flag(cancel)
    slack = _up(unit)
    reach = budget + unit * (chain.blocks + 1) if refine and unit > 1 else budget
    problem = _problem(chain, reach, unit, slack, stop)
    if problem is None:
        return infeasible()
    with _lease(problem, arena_limit_bytes) as lease:
        cells, best = _filled(problem, lease, stop)
        nodes = _cheapest_within(budget, chain, problem, cells, best, stop)
    return infeasible() if nodes is None else measured(chain, Nodes(*nodes.T.copy()))


def frontier(
    chain: Chain,
    budget: int,
    *,
    unit: int,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
) -> Frontier:
    """Find the least extra of every budget of whole slots up to ``budget`` bytes, in one solve."""
    stop = flag(cancel)
    problem = _problem(checked(chain), budget, unit, _up(unit), stop)
    if problem is None:
        return Frontier(np.zeros(0, np.int64), np.zeros(0, np.int64))
    with _lease(problem, arena_limit_bytes) as lease:
        _, best = _filled(problem, lease, stop)
    slots = np.arange(problem.least[0], problem.slots + 1)
    return Frontier(slots, best[0, slots])


def lower_bound(
    chain: Chain,
    budget: int,
    *,
    unit: int,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
) -> int | None:
    """Return an extra time that no schedule within ``budget`` bytes is below, or None if none is.

    Solves with all sizes rounded down, so that no schedule is lost. Where it equals what ``solve``
    found, that is the least in bytes.
    """
    _check(unit)
    stop = flag(cancel)
    problem = _problem(checked(chain), budget, unit, 0, stop)
    if problem is None:
        return None
    with _lease(problem, arena_limit_bytes) as lease:
        _, best = _filled(problem, lease, stop)
    return int(best[0, problem.slots])


def floor(chain: Chain, *, unit: int = 1, cancel: CancelFlag | None = None) -> int:
    """Return the least budget that is feasible, in slots of ``unit`` bytes; needs no table."""
    stop = flag(cancel)
    table = rounded(checked(chain), unit, _up(unit))
    return int(least_from(table, _ranges(table, stop).least)[0])


def warm_up() -> None:
    """Compile the kernels, or load their code from disk."""
    one, two, none = (np.full(2, value, dtype=np.int64) for value in (1, 2, 0))
    chain = Chain(
        offsets=np.arange(3, dtype=np.int64),
        retained=two,
        forward_peak=two,
        backward_peak=two,
        extra=none,
        inside=np.ones(2, dtype=np.bool_),
        plain_peak=one,
        plain_time=one,
        boundary=one,
        gathered=none,
        forward_base=none,
        backward_base=none,
    )
    solve(chain, 3, unit=1)


class _Problem(NamedTuple):
    """Hold a feasible problem: all that is known of it before the table, and the table's slots."""

    table: Slots
    known: Ranges
    least: Int64
    slots: int
    unit: int


def _problem(
    chain: Chain, budget: int, unit: int, slack: int, cancel: CancelFlag
) -> _Problem | None:
    """Round the chain; None if the budget is below the floor. More slots than enough are cut."""
    budget, table = integer("budget", budget), rounded(chain, unit, slack)
    known = _ranges(table, cancel)
    least = least_from(table, known.least)
    slots = min(budget // unit, enough(table))
    return None if slots < least[0] else _Problem(table, known, least, slots, unit)


def _ranges(table: Slots, cancel: CancelFlag) -> Ranges:
    known = ranges(table, kinds(table), cancel)
    if cancel[0]:
        raise SolveCancelled(0)
    return known


def _filled(problem: _Problem, lease: Lease, cancel: CancelFlag) -> tuple[Int64, Int64]:
    """Fill the table; return its cells, and the least extra of blocks j on at ``[j, slots]``."""
    shape = problem.known.rows, problem.slots + 1
    cells = lease.array(shape[0] * shape[1], np.int64).reshape(shape)
    done = fill(problem.table, problem.known, cells, cancel)
    best = fill_first(problem.table, problem.known, problem.least, cells, cancel)
    if cancel[0]:
        raise SolveCancelled(done)
    return cells, best


def _cheapest_within(
    budget: int,
    chain: Chain,
    problem: _Problem,
    cells: Int64,
    best: Int64,
    cancel: CancelFlag,
) -> Int64 | None:
    """Return the nodes of the cheapest schedule in the table that is within the budget in bytes."""
    falls = np.flatnonzero(np.diff(best[0])) + 1  # the first, if not 0, is the floor
    for slots in [*falls[::-1].tolist(), 0]:
        if slots < problem.least[0]:
            break
        if cancel[0]:
            raise SolveCancelled(problem.known.rows)
        nodes = trace(problem.table, problem.known, problem.least, cells, best, slots)
        if highest(chain, nodes)[0] <= budget:
            return nodes
    return None


def _up(unit: int) -> int:
    """Return the slack that rounds up."""
    _check(unit)
    return unit - 1


def _check(unit: int) -> None:
    if not 1 <= integer("unit", unit) <= MOST_BYTES:
        raise ValueError(f"unit is {unit}, not between 1 and 2^59 bytes")


def _lease(problem: _Problem, arena_limit_bytes: int) -> Lease:
    """Borrow the table's memory, or raise if it is too large, naming the unit with which it is not.

    A coarser unit rounds up what each block holds, and the moment itself: by a slot each.
    """
    row_bytes = 8 * problem.known.rows
    needed = row_bytes * (problem.slots + 1)
    if needed <= arena_limit_bytes:
        return Lease(needed)
    blocks = problem.least.size - 1
    fitting = arena_limit_bytes // row_bytes - blocks - 2
    unit = -(-(problem.slots + 1) * problem.unit // fitting) if fitting > 0 else None
    remedy = "no unit would do" if unit is None else f"unit={unit} would do"
    raise ArenaLimitError(
        f"a table for {problem.slots} slots of {problem.unit} bytes takes {needed} bytes, "
        f"above the limit of {arena_limit_bytes}; {remedy}",
        needed_bytes=needed,
        unit=unit,
    )
