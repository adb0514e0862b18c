"""Blocks of a rank's segments: beside their tensors, the weights that are whole for a while.

Where weights are taken apart after the forward, blocks of a segment that run again have theirs
whole from then until their backward is over, all at once. Knows no states and no budget.
"""

from collections.abc import Sequence
from dataclasses import replace

from haversack.profile import Profile, ProfileBlock
from haversack_server.memory.chain import Option
from haversack_server.plan.laid_units import Edges, Laid
from haversack_server.plan.profiled_chain import Inside


def inside_of_rank(
    inside: Sequence[Inside | None], laid: Laid, profile: Profile
) -> tuple[Inside | None, ...]:
    """Give the figures of blocks in segments with what gathers and reductions need."""
    columns = zip(
        inside,
        profile.blocks,
        laid.edges(profile),
        laid.prefetched(),
        laid.whole_again(),
        strict=True,
    )
    found, before = list[Inside | None](), 0
    for row, block, edges, prefetched, (whole, kept) in columns:
        if row is None:
            found.append(None)
        else:
            ahead_bytes = min(prefetched, before)
            found.append(replace(_of(row, block, edges, whole, kept), ahead_bytes=ahead_bytes))
        before = whole
    return tuple(found)


def _of(row: Inside, block: ProfileBlock, edges: Edges, whole: int, kept: int) -> Inside:
    return replace(
        row,
        save=replace(row.save, backward_peak_bytes=_reduced(row.save, edges)),
        recompute=replace(
            row.recompute,
            forward_peak_bytes=max(row.recompute.forward_peak_bytes, edges.forward_gather),
        ),
        peak_bytes=max(row.peak_bytes, edges.forward_gather),
        # What is kept of them is in the bases, until they are whole.
        whole_bytes=whole - kept,
        # Gathered into one buffer, then copied out of it.
        gather_bytes=2 * whole + block.arriving_bytes if whole else 0,
        begin_bytes=max(edges.backward_gather, edges.reduction) + row.recompute.retained_bytes,
    )


def _reduced(save: Option, edges: Edges) -> int:
    return max(save.backward_peak_bytes, edges.reduction + save.retained_bytes)
