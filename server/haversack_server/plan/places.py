"""Where a peak of a described model is, and what it is made of, for an answer."""

from haversack.plan import PeakAt
from haversack.units import format_bytes
from haversack_server.memory.chain import Chain
from haversack_server.memory.ledger import NAMES
from haversack_server.memory.timeline import Column, Timeline, TimelineMoment


def peak_at(chain: Chain, line: Timeline) -> PeakAt:
    """Name the highest moment of a timeline, its block and its largest terms."""
    moment = line.peak
    block = chain.blocks[moment.block].name if moment.block >= 0 else ""
    return PeakAt(
        block=block, phase=moment.phase, moment=moment.name, largest_terms=_largest(moment)
    )


def _largest(moment: TimelineMoment) -> tuple[str, ...]:
    """The terms that make up most of a moment, the largest first."""
    sizes = sorted(zip(moment.bytes_by_column, Column, strict=True), reverse=True)
    return tuple(f"{NAMES[column]}: {format_bytes(size)}" for size, column in sizes[:4] if size)
