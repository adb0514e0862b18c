"""A schedule with segments: its tree, read and shown, and its peak and time added up exactly.

Walks the tree as a step would run it, in bytes. Knows no recurrence and no slots.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from haversack_kernels._jit import Int64, jit
from haversack_kernels.segments_columns import Chain, checked


class Nodes(NamedTuple):
    """Hold a tree in preorder: node ``i`` is blocks ``first[i]`` to ``last[i]``.

    That is one block under ``option[i]``, a row of the option columns, or a segment if the option
    is -1. ``parent[i]`` is the node of the segment around, or -1.
    """

    first: Int64
    last: Int64
    option: Int64
    parent: Int64


FIRST, LAST, OPTION, PARENT = range(4)
"""Columns of the nodes where kernels hold them."""


class Schedule(NamedTuple):
    """Say how to run a chain: a tree in preorder, with its cost and its peak in bytes.

    ``extra`` and ``peak`` are added up again from the columns; ``block`` and ``backward`` say where
    the peak is first. If no schedule is ``feasible`` there are no nodes, and the figures are 0.
    """

    feasible: bool
    extra: int
    peak: int
    block: int
    backward: bool
    nodes: Nodes


class Block(NamedTuple):
    """Run a block under an option, keeping what the option retains."""

    block: int
    option: int


class Segment(NamedTuple):
    """Run blocks ``first`` to ``last`` under one checkpoint; the children say how in backward."""

    first: int
    last: int
    children: "tuple[Block | Segment, ...]"


Tree: TypeAlias = tuple[Block | Segment, ...]


def infeasible() -> Schedule:
    """Return the answer that no schedule is within the budget."""
    none = np.zeros(0, np.int64)
    return Schedule(False, 0, 0, 0, False, Nodes(none, none, none, none))


def measured(chain: Chain, nodes: Nodes) -> Schedule:
    """Add up a schedule of ``chain`` from its columns; of equal peaks the first is named."""
    chain = checked(chain)
    peak, block, backward = highest(chain, np.stack(nodes, axis=1))
    return Schedule(True, extra_time(chain, nodes), peak, block, backward, nodes)


def tree(nodes: Nodes) -> Tree:
    """Return the nodes as a tree of nouns."""
    below: list[list[Block | Segment]] = [[] for _ in range(nodes.first.size + 1)]
    for node in range(nodes.first.size - 1, -1, -1):
        first, last = int(nodes.first[node]), int(nodes.last[node])
        option, parent = int(nodes.option[node]), int(nodes.parent[node])
        children = tuple(reversed(below[node]))
        below[parent].append(Segment(first, last, children) if option < 0 else Block(first, option))
    return tuple(reversed(below[-1]))


def show(nodes: Nodes) -> str:
    """Return a line per node, indented by the segments around it."""
    depth: list[int] = []
    lines = []
    for node, parent in enumerate(nodes.parent.tolist()):
        depth.append(0 if parent < 0 else depth[parent] + 1)
        first, last, option = nodes.first[node], nodes.last[node], nodes.option[node]
        what = f"blocks {first} to {last} again:" if option < 0 else f"block {first}: {option}"
        lines.append("  " * depth[-1] + what)
    return "\n".join(lines)


@jit
def highest(chain: Chain, nodes: Int64) -> tuple[int, int, bool]:
    """Walk the step; return the highest moment's bytes, its block, and whether backward had begun.

    ``nodes`` has the four columns of ``Nodes``. First all nodes run forward, then backward from the
    last; a segment's nodes run forward when it is its turn, and wait for backward themselves.
    """
    gathered, after = _gathered_before(chain), _after(nodes)
    waiting, left, held = np.empty(after.size, np.int64), 0, 0
    peak, place, backward = -1, 0, False
    node = 0
    while node < after.size:
        there, block = _forward(chain, nodes, node, chain.forward_base)
        if held + there > peak:
            peak, place = held + there, block
        held += _kept(chain, nodes, node, gathered)
        waiting[left] = node
        left, node = left + 1, int(after[node])
    nothing = np.zeros_like(chain.forward_base)
    while left > 0:
        left -= 1
        node = int(waiting[left])
        held -= _kept(chain, nodes, node, gathered)
        last, option = int(nodes[node, LAST]), nodes[node, OPTION]
        base = int(chain.backward_base[last])
        if option >= 0 and held + base + int(chain.backward_peak[option]) > peak:
            peak, place, backward = held + base + int(chain.backward_peak[option]), last, True
        child = node + 1
        while child < after[node]:
            # The gradient of the segment's output waits, and every unit up to it is gathered.
            units = int(gathered[last] - gathered[nodes[child, FIRST]])
            there, block = _forward(chain, nodes, child, nothing)
            there += held + base + int(chain.boundary[last]) + units
            if there > peak:
                peak, place, backward = there, block, True
            held += _kept(chain, nodes, child, gathered)
            waiting[left] = child
            left, child = left + 1, int(after[child])
    return peak, place, backward


@jit
def _gathered_before(chain: Chain) -> Int64:
    """Sum up the units of the blocks before, shape ``(blocks + 1,)``."""
    before = np.zeros(chain.gathered.size + 1, np.int64)
    for block in range(chain.gathered.size):
        before[block + 1] = before[block] + chain.gathered[block]
    return before


@jit
def _after(nodes: Int64) -> Int64:
    """Return, per node, the first node that is not within it."""
    after = np.arange(1, nodes.shape[0] + 1)
    for node in range(nodes.shape[0] - 1, -1, -1):
        parent = nodes[node, PARENT]
        if parent >= 0:
            after[parent] = max(after[parent], after[node])
    return after


@jit
def _forward(chain: Chain, nodes: Int64, node: int, base: Int64) -> tuple[int, int]:
    """Return the most that the node's forward adds with the running block's base, and its block."""
    first, last, option = nodes[node, FIRST], nodes[node, LAST], nodes[node, OPTION]
    if option >= 0:
        return int(base[first] + chain.forward_peak[option]), int(first)
    peak, place = int(base[first] + chain.plain_peak[first]), int(first)
    for block in range(first + 1, last + 1):
        there = int(base[block] + chain.boundary[block - 1] + chain.plain_peak[block])
        if there > peak:
            peak, place = there, block
    return peak, place


@jit
def _kept(chain: Chain, nodes: Int64, node: int, gathered: Int64) -> int:
    """Return what the node holds from its forward to its backward."""
    first, last, option = nodes[node, FIRST], nodes[node, LAST], nodes[node, OPTION]
    kept = chain.boundary[last] if option < 0 else chain.retained[option]
    if nodes[node, PARENT] < 0:
        return int(kept)
    return int(kept + gathered[last + 1] - gathered[first])


def extra_time(chain: Chain, nodes: Nodes) -> int:
    """Add up the options' extra times, and a plain forward of all that runs inside a segment."""
    inner = nodes.parent >= 0
    before = np.concatenate([np.zeros(1, np.int64), chain.plain_time.cumsum()])
    again = before[nodes.last[inner] + 1] - before[nodes.first[inner]]
    return int(chain.extra[nodes.option[nodes.option >= 0]].sum() + again.sum())
