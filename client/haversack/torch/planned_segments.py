"""The segments of a plan, read off its actions, or refused. Knows no model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from haversack.errors import Violation, check
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch.segment_runs import Nest

MOST_DEEP = 130
"""Segments within each other: each has a block of its own, and plans segment so many blocks."""


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """The blocks of a segment by name, and how it runs again: a nest of their places in it."""

    blocks: tuple[str, ...]
    nest: Nest


def segments_of(plan: Plan) -> list[PlannedSegment]:
    """Group the blocks of each segment; raise ``InvalidRequestError`` for what is none."""
    found: dict[int, PlannedSegment] = {}
    check(
        [
            Violation(f"plan.actions[{place}].{field}", sentence)
            for place, action in enumerate(plan.actions)
            for field, sentence in _wrong(action)
        ]
    )
    violations: list[Violation] = []
    for number, group in groupby(plan.actions, key=lambda action: action.segment):
        actions = list(group)
        if number in found:
            sentence = f"segment {number} is in two pieces; its blocks follow one another"
            violations.append(Violation("plan.actions", sentence))
        if number:
            blocks = tuple(action.block for action in actions)
            nest = _nest([(at, each.inner_segments) for at, each in enumerate(actions)])
            violations += [_open_end(blocks[at]) for at in _open_ends(nest)]
            found[number] = PlannedSegment(blocks, nest)
    check(violations)
    return list(found.values())


def _wrong(action: BlockAction) -> Iterator[tuple[str, str]]:
    if action.segment and action.option != "recompute":
        yield (
            "segment",
            f"{action.block} is {action.option[:60]!r} in a segment, whose blocks are recomputed "
            "as one; recompute would do",
        )
    if action.inner_segments and not action.segment:
        yield (
            "inner_segments",
            f"{action.block} is in no segment that another could be in; give its segment",
        )
    if len(action.inner_segments) > MOST_DEEP:
        yield (
            "inner_segments",
            f"{action.block} is {len(action.inner_segments)} segments deep; at most {MOST_DEEP} "
            "would do",
        )
    if action.segment < 0 or min(action.inner_segments, default=1) < 1:
        field = "segment" if action.segment < 0 else "inner_segments"
        yield field, f"{action.block} has a number below those of segments, which begin at 1"


def _nest(placed: Sequence[tuple[int, Sequence[int]]]) -> Nest:
    """Turn the path of each block into a nest; blocks of one number that follow are together."""
    found: list[int | Nest] = []
    for number, group in groupby(placed, key=lambda each: each[1][0] if each[1] else 0):
        within = list(group)
        if number:
            found.append(_nest([(place, path[1:]) for place, path in within]))
        else:
            found += [place for place, _ in within]
    return tuple(found)


def _open_ends(nest: Nest) -> Iterable[int]:
    """Find the last blocks of nests that are in a nest within: nothing would be saved of them."""
    for place, each in enumerate(nest, 1):
        if isinstance(each, int):
            continue
        if place == len(nest):
            yield _last(each)
        yield from _open_ends(each)


def _last(nest: Nest) -> int:
    last = nest[-1]
    return last if isinstance(last, int) else _last(last)


def _open_end(block: str) -> Violation:
    return Violation(
        "plan.actions",
        f"{block} ends a segment and is in one within it; the last block of a segment is saved "
        "when it runs again: shorten its inner_segments",
    )
