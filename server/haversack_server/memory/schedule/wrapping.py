"""Which blocks are gathered together: the wrap units of a chain, and the root unit around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from haversack_server.memory.chain import Chain, ChainBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapUnit:
    """Blocks ``first`` to ``last`` as one unit, in elements: padded, one shard, without padding.

    ``elements`` and what is called trained leave frozen parameters out.
    """

    index: int
    first: int
    last: int
    whole: int
    shard: int
    elements: int
    trained_whole: int
    trained_shard: int

    @property
    def blocks(self) -> range:
        """The blocks inside."""
        return range(self.first, self.last + 1)


def wrap_units(chain: Chain) -> tuple[WrapUnit, ...]:
    """List the units that are gathered for their own blocks, in forward order."""
    spans: list[list[int]] = []
    for index, block in enumerate(chain.blocks):
        if block.root:
            continue
        joins = block.joins_unit_before and spans and spans[-1][-1] == index - 1
        if joins:
            spans[-1].append(index)
        else:
            spans.append([index])
    return tuple(_unit(chain.blocks, span, place) for place, span in enumerate(spans))


def root_unit(chain: Chain) -> WrapUnit | None:
    """Give the unit of all root blocks; it stays gathered from forward to the end of backward."""
    inside = [index for index, block in enumerate(chain.blocks) if block.root]
    return _unit(chain.blocks, inside, -1) if inside else None


def _unit(blocks: Sequence[ChainBlock], inside: Sequence[int], index: int) -> WrapUnit:
    states = [blocks[place].unit for place in inside]
    return WrapUnit(
        index=index,
        first=inside[0],
        last=inside[-1],
        whole=sum(state.whole for state in states),
        shard=sum(state.shard for state in states),
        elements=sum(state.elements for state in states),
        trained_whole=sum(state.trained_whole for state in states),
        trained_shard=sum(state.trained_shard for state in states),
    )
