"""What blocks need in the middle of a segment, read off one step in which they are in the longest.

Blocks that follow one another, with nothing between them, and may run twice can be in a segment.
Any shorter segment of them is bounded by these figures. Knows no options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from haversack.profile import Profile
from haversack.torch.figures import Figures
from haversack.torch.roofline import whole_ns
from haversack.torch.storages import Event
from haversack.torch.watching import Watch


@dataclass(frozen=True, slots=True)
class Inside:
    """One block in a segment, in bytes and nanoseconds, as ``ProfileBlock`` has them."""

    segment_bytes: int
    segment_peak_bytes: int
    forward_ns: int


def longest_segments(
    order: Sequence[str], open_blocks: Sequence[str], runs: Sequence[Sequence[Figures]]
) -> list[tuple[str, ...]]:
    """Group neighbours that may run twice; what costs anything between two parts them.

    A block without a backward, such as a frozen one, keeps nothing, and a segment would keep its
    input for it: there is none for it to be in.
    """
    groups: list[list[str]] = [[]]
    for place, name in enumerate(order):
        is_member = name in open_blocks and _has_backward(2 * place + 1, runs)
        if is_member:
            groups[-1].append(name)
        if not is_member or _costs(2 * place + 2, runs):
            groups.append([])
    return [tuple(group) for group in groups if len(group) > 1]


def _has_backward(part: int, runs: Sequence[Sequence[Figures]]) -> bool:
    return any(run[part].backward_peak_bytes for run in runs)


def _costs(part: int, runs: Sequence[Sequence[Figures]]) -> bool:
    nothing = Figures()
    return any(run[part] != nothing for run in runs)


def inside_of(
    watch: Watch, segments: Sequence[Sequence[str]], stands_for: Sequence[int]
) -> dict[str, Inside]:
    """Read the figures of every block of the segments off a step that ran them.

    A part that did not run itself has those of the part that stands for it, whose neighbours are
    the same.
    """
    first = {_part(watch, name): _part(watch, names[0]) for names in segments for name in names}
    highest, left = _walked(watch.record.events, watch.parts, first)
    found = {}
    for names in segments:
        for name in names:
            part = stands_for[_part(watch, name)]
            found[name] = Inside(
                # What a block hands further than to the next is kept by a shorter segment there.
                segment_bytes=left[part] + watch.skipping.get(name, 0),
                segment_peak_bytes=highest[part] - sum(left[first[part] : part]),
                forward_ns=whole_ns(watch.seen[watch.order[part // 2]].recomputed_ns),
            )
    return found


def with_segments(profile: Profile, inside: Mapping[str, Inside]) -> Profile:
    """Write them into the blocks of a profile."""
    blocks = [
        replace(block, **asdict(inside[block.name])) if block.name in inside else block
        for block in profile.blocks
    ]
    return replace(profile, blocks=tuple(blocks))


def _part(watch: Watch, name: str) -> int:
    return 2 * watch.order.index(name) + 1


def _walked(
    events: Sequence[Event], parts: int, first: Mapping[int, int]
) -> tuple[dict[int, int], list[int]]:
    """Walk through the forward: the highest live bytes from the segment's first part on, and what
    each part leaves. What the caller holds is left out."""
    live, highest = [0] * parts, dict.fromkeys(first, 0)
    for event in events:
        if event.in_backward:
            break
        if not event.made.outlives:
            live[event.made.part] += event.delta_bytes
        part = event.part
        if part in first:
            highest[part] = max(highest[part], sum(live[first[part] : part + 1]))
    return highest, live
