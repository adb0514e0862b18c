"""Gather windows without any framework's buffers, for callers who know their units alone.

A unit is gathered when its turn comes (and as many ahead as asked for) and freed when it ends; its
gradients are whole until the unit before has run. Not a measurement.
"""

from collections.abc import Iterator
from itertools import accumulate

from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Live, Place, Stretch
from haversack_server.memory.schedule.fsdp2_buffers import carried
from haversack_server.memory.schedule.span import Span


class Ideal:
    """One rank's windows."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._wholes = [0 if block.root else block.unit.whole for block in chain.blocks]
        self._root = sum(block.unit.whole for block in chain.blocks if block.root)

    def standing(self, step: int) -> dict[Column, int]:
        """Give what lives as long as the job: nothing but the shards."""
        return {}

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Gather the unit that runs and those ahead."""
        for index in range(span.start, span.stop):
            live = Live(carried(self._chain, span))
            live.add(Column.GATHERED, self._gathered(index))
            live.add(Column.PREFETCHED, self._ahead(range(index + 1, span.stop)))
            yield live.at(Place.FORWARD, index)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Gather as in forward, with whole gradients until they are reduced."""
        recipe = self._chain.recipe
        done = self._shards_done(span)
        for index in range(span.stop - 1, span.start - 1, -1):
            reducing = self._wholes[index + 1] if index + 1 < span.stop else 0
            live = Live(carried(self._chain, span))
            live.add(Column.GATHERED, self._gathered(index))
            live.add(Column.PREFETCHED, self._ahead(range(index - 1, span.start - 1, -1)))
            live.add(Column.UNSHARDED_GRADIENTS, self._gathered(index))
            live.add(Column.REDUCE, reducing * recipe.reduce)
            live.add(Column.GRADIENTS, done[index])
            yield live.at(Place.BACKWARD, index)
            live.add(Column.REDUCE, (self._wholes[index] - reducing) * recipe.reduce)
            if not self._chain.blocks[index].root:
                yield live.at(Place.REDUCE, index)

    def _gathered(self, index: int) -> int:
        return (self._wholes[index] + self._root) * self._chain.recipe.compute

    def _ahead(self, places: range) -> int:
        depth = self._chain.schedule.prefetch_units
        return sum(self._wholes[place] for place in places[:depth]) * self._chain.recipe.compute

    def _shards_done(self, span: Span) -> list[int]:
        """Gradients of the blocks after each, where they are not there already."""
        blocks, each = self._chain.blocks, self._chain.recipe.gradient
        sizes = [
            block.unit.trained_shard * each if index < span.gradients_from else 0
            for index, block in enumerate(blocks)
        ]
        return [*list(accumulate(reversed(sizes)))[::-1][1:], 0]
