"""Every schedule of a short chain with segments, executed and added up moment by moment.

Enumerates trees, runs each as a program that holds and frees named pieces, and sums what is there
at every moment. No recurrence, no pruning, and nothing imported from the code under test. A program
depends on the shape of a chain only, so it is run once for all chains of a shape. At the end stands
the plain dynamic programme for chains too long to enumerate.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

Int64: TypeAlias = NDArray[np.int64]


class Chain(NamedTuple):
    """Hold the columns of a chain: six per option, of which offsets divides them, six per block."""

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    extra: Int64
    inside: NDArray[np.bool_]
    plain_peak: Int64
    plain_time: Int64
    boundary: Int64
    gathered: Int64
    forward_base: Int64
    backward_base: Int64


class Block(NamedTuple):
    """Run a block under an option, keeping its tape."""

    block: int
    option: int


class Segment(NamedTuple):
    """Run blocks first to last under one checkpoint, and its children in its backward."""

    first: int
    last: int
    children: tuple["Block | Segment", ...]


Node: TypeAlias = Block | Segment
Tree: TypeAlias = tuple[Node, ...]
Term: TypeAlias = tuple[str, int]  # a column and a place in it


class Moment(NamedTuple):
    """Name the pieces held over the moment, and what lives in it alone."""

    held: tuple[Term, ...]
    running: tuple[Term, ...]


class Program(NamedTuple):
    """Hold what a tree does: the moments it goes through, and the terms of its extra time."""

    tree: Tree
    moments: tuple[Moment, ...]
    spent: tuple[Term, ...]


class Grammar(NamedTuple):
    """Say which trees there are: the options of each block, and those allowed in a segment.

    Without ``tails`` no segment ends where the one around it ends.
    """

    rows: tuple[range, ...]
    inside: tuple[bool, ...]
    tails: bool


def trees(grammar: Grammar, first: int, last: int, around: Segment | None) -> Iterator[Tree]:
    """List all ways to run blocks first to last; a segment is not the whole of the one around."""
    if first > last:
        yield ()
        return
    for option in grammar.rows[first]:
        if around is None or grammar.inside[option]:
            for rest in trees(grammar, first + 1, last, around):
                yield (Block(first, option), *rest)
    for end in range(first, last + 1):
        bare = Segment(first, end, ())
        if bare == around or (around is not None and end == around.last and not grammar.tails):
            continue
        for children in trees(grammar, first, end, bare):
            for rest in trees(grammar, end + 1, last, around):
                yield (Segment(first, end, children), *rest)


class _Machine:
    """Executes a tree, noting every moment."""

    def __init__(self) -> None:
        self.held: list[list[Term]] = []  # what each node passed so far holds, the latest last
        self.moments: list[Moment] = []
        self.spent: list[Term] = []

    def note(self, *running: Term) -> None:
        held = (term for piece in self.held for term in piece)
        self.moments.append(Moment(tuple(held), running))

    def step(self, tree: Tree) -> None:
        """Run forward once, then backward; the base is that of the block whose turn it is."""
        for node in tree:
            if isinstance(node, Block):
                self.note(("forward_base", node.block), ("forward_peak", node.option))
                self.held.append([("retained", node.option)])
            else:
                for block in range(node.first, node.last + 1):
                    self.note(("forward_base", block), *self._plain(node, block))
                self.held.append([("boundary", node.last)])
        for node in reversed(tree):
            self.held.pop()
            if isinstance(node, Block):
                self.spent.append(("extra", node.option))
                self.note(("backward_base", node.block), ("backward_peak", node.option))
            else:
                self.recompute(node, outermost=node.first)

    def recompute(self, segment: Segment, outermost: int) -> None:
        """Run a segment's forward again, with the gradient of its output there, then backward."""
        now = (("backward_base", segment.last), ("boundary", segment.last))
        gathered = len(self.held)
        self.held.append([("gathered", unit) for unit in range(outermost, segment.last)])
        for node in segment.children:
            if isinstance(node, Block):
                self.spent.append(("plain_time", node.block))
                self.note(*now, ("forward_peak", node.option))
                self.held.append([("retained", node.option)])
            else:
                for block in range(node.first, node.last + 1):
                    self.spent.append(("plain_time", block))
                    self.note(*now, *self._plain(node, block))
                self.held.append([("boundary", node.last)])
        for node in reversed(segment.children):
            self.held.pop()
            self.held[gathered] = []
            if isinstance(node, Segment):
                self.recompute(node, outermost)
                continue
            self.spent.append(("extra", node.option))
            self.held[gathered] = [("gathered", unit) for unit in range(outermost, node.block)]
            self.note(("backward_base", node.block), ("backward_peak", node.option))
        del self.held[gathered]

    def _plain(self, segment: Segment, block: int) -> list[Term]:
        peak = ("plain_peak", block)
        return [peak] if block == segment.first else [("boundary", block - 1), peak]


def execute(tree: Tree) -> Program:
    """Run a tree on paper."""
    machine = _Machine()
    machine.step(tree)
    return Program(tree, tuple(machine.moments), tuple(machine.spent))


def peak_of(chain: Chain, program: Program, unit: int = 1) -> int:
    """Return the highest moment in units: pieces rounded up one by one, the rest together."""
    return max(_measure(chain, moment, unit) for moment in program.moments)


def extra_of(chain: Chain, program: Program) -> int:
    """Return the time that a program adds to a step that recomputes nothing."""
    return sum(int(getattr(chain, name)[place]) for name, place in program.spent)


def _measure(chain: Chain, moment: Moment, unit: int) -> int:
    held = [int(getattr(chain, name)[place]) for name, place in moment.held]
    running = sum(int(getattr(chain, name)[place]) for name, place in moment.running)
    return sum(-(-piece // unit) for piece in held) - (-running // unit)


class Shape(NamedTuple):
    """Hold all programs of a shape as places in the lists of their moments and terms."""

    programs: tuple[Program, ...]
    moments: tuple[Moment, ...]
    moment_places: Int64
    terms: tuple[Term, ...]
    term_places: Int64


@lru_cache(maxsize=64)
def _shape(counts: tuple[int, ...], inside: tuple[bool, ...], tails: bool) -> Shape:
    ends = np.cumsum(counts).tolist()
    rows = tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))
    grammar = Grammar(rows, inside, tails)
    programs = tuple(map(execute, trees(grammar, 0, len(counts) - 1, None)))
    moments = {moment: i for i, moment in enumerate({m: 0 for p in programs for m in p.moments})}
    terms = {term: i for i, term in enumerate({t: 0 for p in programs for t in p.spent})}
    return Shape(
        programs,
        tuple(moments),
        _padded([[moments[each] for each in program.moments] for program in programs], None),
        tuple(terms),
        _padded([[terms[each] for each in program.spent] for program in programs], len(terms)),
    )


def _padded(places: list[list[int]], filler: int | None) -> Int64:
    """Return a row per list, filled up with ``filler``, or with its own first place."""
    table = np.empty((len(places), max(map(len, places), default=0)), dtype=np.int64)
    for row, each in zip(table, places, strict=True):
        row[: len(each)] = each
        row[len(each) :] = each[0] if filler is None else filler
    return table


class Outcomes(NamedTuple):
    """Hold peak and extra of every schedule, shape ``(schedules,)`` each."""

    programs: tuple[Program, ...]
    peak: Int64
    extra: Int64

    def best(self, capacity: int) -> int:
        """Return the least extra of the schedules within ``capacity``, or -1."""
        within = self.extra[self.peak <= capacity]
        return int(within.min()) if within.size else -1


def all_schedules(chain: Chain, unit: int = 1, *, tails: bool = True) -> Outcomes:
    """Execute every schedule of ``chain``; peaks are in units."""
    counts = tuple(np.diff(chain.offsets).tolist())
    shape = _shape(counts, tuple(chain.inside.tolist()), tails)
    heights = np.array([_measure(chain, moment, unit) for moment in shape.moments])
    times = np.array([int(getattr(chain, name)[place]) for name, place in shape.terms] + [0])
    peak = heights[shape.moment_places].max(axis=1)
    return Outcomes(shape.programs, peak, times[shape.term_places].sum(axis=1))


@numba.njit(cache=True)
def extra_by_plain_loops(chain: Chain, unit: int, slots: int) -> Int64:
    """Return the least extra for every number of slots, or -1: one cell after the other.

    again[s, e, m] is the time of running blocks s..e-1 again and backward in m free slots.
    """
    n, never = chain.offsets.size - 1, 1 << 60
    again = np.full((n + 1, n + 1, slots + 1), never)
    gathered = np.zeros(n + 1, np.int64)
    for block in range(n):
        gathered[block + 1] = gathered[block] - (-chain.gathered[block] // unit)
    for s in range(n, -1, -1):
        again[s, s, :] = 0
        for e in range(s + 1, n + 1):
            now = chain.backward_base[e - 1] + chain.boundary[e - 1]
            units = gathered[e - 1] - gathered[s]
            for m in range(slots + 1):
                best = never
                for o in range(chain.offsets[s], chain.offsets[s + 1]):
                    forward = units - (-(now + chain.forward_peak[o]) // unit)
                    backward = -(-(chain.backward_base[s] + chain.backward_peak[o]) // unit)
                    if chain.inside[o] and forward <= m and backward <= m:
                        left = m - gathered[s + 1] + gathered[s] + (-chain.retained[o] // unit)
                        time = chain.plain_time[s] + chain.extra[o]
                        if e == s + 1:
                            best = min(best, time)
                        elif left >= 0:
                            best = min(best, time + again[s + 1, e, left])
                peak, time = chain.plain_peak[s], chain.plain_time[s]
                for cut in range(s + 1, e):
                    forward = units - (-(now + peak) // unit)
                    left = m - gathered[cut] + gathered[s] + (-chain.boundary[cut - 1] // unit)
                    if forward <= m and left >= 0:
                        best = min(best, time + again[cut, e, left] + again[s, cut, m])
                    peak = max(peak, chain.boundary[cut - 1] + chain.plain_peak[cut])
                    time += chain.plain_time[cut]
                again[s, e, m] = min(best, never)
    return _first_by_plain_loops(chain, unit, again)


@numba.njit(cache=True)
def _first_by_plain_loops(chain: Chain, unit: int, again: Int64) -> Int64:
    n, slots, never = chain.offsets.size - 1, again.shape[2] - 1, 1 << 60
    step = np.full((n + 1, slots + 1), never)
    step[n, :] = 0
    for j in range(n - 1, -1, -1):
        for m in range(slots + 1):
            for o in range(chain.offsets[j], chain.offsets[j + 1]):
                forward = -(-(chain.forward_base[j] + chain.forward_peak[o]) // unit)
                backward = -(-(chain.backward_base[j] + chain.backward_peak[o]) // unit)
                left = m if j + 1 == n else m + (-chain.retained[o] // unit)
                if forward <= m and backward <= m and left >= 0:
                    step[j, m] = min(step[j, m], chain.extra[o] + step[j + 1, left])
            peak = 0
            for cut in range(j + 1, n + 1):
                carried = chain.boundary[cut - 2] if cut > j + 1 else 0
                bytes_there = chain.forward_base[cut - 1] + carried + chain.plain_peak[cut - 1]
                peak = max(peak, -(-bytes_there // unit))
                left = m if cut == n else m + (-chain.boundary[cut - 1] // unit)
                if peak <= m and left >= 0:
                    step[j, m] = min(step[j, m], again[j, cut, m] + step[cut, left])
    return np.where(step[0] < never, step[0], -1)
