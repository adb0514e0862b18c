"""Plans for profiles drawn at random, against every plan there is, and against CP-SAT.

A plan here is a choice of options and of segments; the oracle cuts the chain in every way and adds
up every moment. It shares the moments of a piece with the planner; ``plan_walks`` shares nothing,
and the executed cases check peaks.
"""

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from tests.bench.table import Row, at_most

from haversack_server.memory.chain import Option
from haversack_server.plan.ladder import Ladder
from haversack_server.plan.pieces import Piece, pieces_of
from haversack_server.plan.profiled_chain import Inside, ProfiledChain
from haversack_server.plan.solving import Solving

SECTION = "optimality"
INSTANCES = 300


def drawn(
    draw: random.Random, blocks: int, options: int = 3, *, segments: bool = True
) -> ProfiledChain:
    """Draw a chain of small numbers."""
    rows = tuple(tuple(_option(draw, index) for index in range(options)) for _ in range(blocks))
    inside = tuple(
        Inside(
            save=own[0],
            recompute=own[1],
            segment_bytes=draw.choice((0, 0, 3)),
            peak_bytes=own[1].forward_peak_bytes + draw.randint(0, 10),
            forward_ns=own[1].extra_ns + draw.randint(0, 5),
        )
        if draw.random() < 0.8
        else None
        for own in rows
    )
    gradients = [draw.randint(0, 10) for _ in range(blocks)]
    before = tuple(reversed([0, *accumulate(reversed(gradients))][:-1]))
    return ProfiledChain(
        names=tuple(f"layers.{place}" for place in range(blocks)),
        options=rows,
        standing_bytes=draw.randint(0, 20),
        forward_gradients=(0,) * blocks,
        gradients_before=before,
        all_gradients=sum(gradients),
        inside=inside,
    )


def _option(draw: random.Random, index: int) -> Option:
    retained = (60, 8, 30)[index % 3] + draw.randint(0, 20)
    return Option(
        name=("save", "recompute", "selective aten.mm.default:0")[index % 3],
        retained_bytes=retained,
        forward_peak_bytes=retained + draw.randint(0, 40),
        backward_peak_bytes=80 + draw.randint(0, 40),
        extra_ns=0 if index == 0 else draw.randint(5, 40),
    )


def every_plan(chain: ProfiledChain) -> Iterator[tuple[int, int]]:
    """Give peak and extra time of every way to cut the chain."""
    pieces = pieces_of(chain)

    def walk(place: int, kept: int, peak: int, extra: int) -> Iterator[tuple[int, int]]:
        if place == len(pieces):
            yield max(peak, chain.fixed_bytes), extra
            return
        for piece in pieces[place]:
            higher = max(peak, kept + piece.need_bytes)
            yield from walk(piece.stop, kept + piece.retained_bytes, higher, extra + piece.extra_ns)

    yield from walk(0, 0, 0, 0)


def compared() -> Iterator[Row]:
    """Hold floor and extra time against all plans of up to 6 blocks, at several budgets."""
    draw = random.Random(0)
    wrong_floor = wrong = falls = solved = 0
    for _ in range(INSTANCES):
        chain = drawn(draw, draw.randint(2, 6))
        plans, ladder = list(every_plan(chain)), Ladder(chain, 10**6, Solving())
        floor = ladder.floor()[0]
        wrong_floor += floor != min(peak for peak, _ in plans)
        before = None
        for step in range(5):
            budget = floor + step * 25
            found, solved = ladder.solve(budget), solved + 1
            wrong += found.extra_ns != min(extra for peak, extra in plans if peak <= budget)
            wrong += not found.proven
            falls += before is not None and found.extra_ns > before
            before = found.extra_ns
    yield at_most(SECTION, f"floor against every plan, of {INSTANCES}", wrong_floor, 0, "wrong")
    yield at_most(SECTION, f"least extra against every plan, of {solved}", wrong, 0, "wrong")
    yield at_most(SECTION, "a larger budget with more extra time", falls, 0, "cases")


def against_cp_sat() -> Iterator[Row]:
    """Hold longer chains against CP-SAT, which knows pieces and moments as sums."""
    draw, wrong, tried = random.Random(1), 0, 40
    for _ in range(tried):
        chain = drawn(draw, 16)
        ladder = Ladder(chain, 10**6, Solving())
        budget = ladder.floor()[0] + draw.randint(0, 150)
        wrong += ladder.solve(budget).extra_ns != _cp_sat(ladder.pieces, budget)
    yield at_most(SECTION, f"least extra against CP-SAT, 16 blocks, of {tried}", wrong, 0, "wrong")


def _cp_sat(pieces: tuple[tuple[Piece, ...], ...], budget: int) -> int:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    chosen = {piece: model.new_bool_var("") for each in pieces for piece in each}
    for place in range(len(pieces)):
        over = [var for piece, var in chosen.items() if piece.first <= place < piece.stop]
        model.add_exactly_one(over)
    for piece, var in chosen.items():
        before = sum(
            other.retained_bytes * taken
            for other, taken in chosen.items()
            if other.stop <= piece.first
        )
        model.add(before + piece.need_bytes <= budget).only_enforce_if(var)
    model.minimize(sum(piece.extra_ns * var for piece, var in chosen.items()))
    solver: Any = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    return int(solver.objective_value)


def rows() -> Iterator[Row]:
    """Both oracles."""
    yield from compared()
    yield from against_cp_sat()
