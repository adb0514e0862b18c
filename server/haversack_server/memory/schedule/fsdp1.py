"""FSDP1: ``FullyShardedDataParallel``, whose units are flat parameters (read at torch 2.13.0).

A unit's shard is cast, if it has another type, and gathered into the flat parameter itself, of
which the parameters are views: there is no copy. In backward the unit before is gathered ahead of
the unit's own backward (PRE), after it (POST) or when it is needed (NONE). The gradients of the
views are joined into one of the flat parameter, so both are whole for a moment; that is cast to the
reduction's type and reduced into the shard's gradient. Units are freed on the stream that uses
them: what the allocator cannot hand out yet is reserved, not allocated. Source:
torch/distributed/fsdp/_flat_param.py and _runtime_utils.py.
"""

from collections.abc import Iterator

from haversack.parallelism import BackwardPrefetch
from haversack_server.memory.moments import Column, Live, Place, Stretch, highest
from haversack_server.memory.schedule.fsdp2_buffers import Buffers, carried
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.schedule.wrapped import Wrapped
from haversack_server.memory.schedule.wrapping import WrapUnit


class Fsdp1(Wrapped):
    """One rank's buffers under ``FullyShardedDataParallel``."""

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Gather, run and free one unit after the other."""
        live = self._start(span)
        gathered: set[int] = set()
        for index in range(span.start, span.stop):
            unit = self._of_block.get(index)
            if unit is not None and unit.first == index:
                yield self._open(live, unit, gathered, Place.GATHER, index)
            yield live.at(Place.FORWARD, index)
            if unit is not None and unit.last == index and self._reshards:
                live.drop(Column.GATHERED, self._sizes[unit.index].gathered)
                gathered.discard(unit.index)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Gather, run, reduce and free, from the last block to the first."""
        live, each = self._start(span), self._chain.recipe.compute
        gathered: set[int] = set()
        if not self._reshards:
            gathered = {unit.index for unit in self._units}
            live.add(Column.GATHERED, sum(sizes.gathered for sizes in self._sizes))
        for index in range(span.stop - 1, span.start - 1, -1):
            unit = self._of_block.get(index)
            if unit is not None and unit.last == index:
                yield self._open(live, unit, gathered, Place.GATHER_BACK, index)
                if self._prefetches(BackwardPrefetch.PRE) and unit.index:
                    ahead = self._units[unit.index - 1]
                    yield self._open(live, ahead, gathered, Place.GATHER_BACK, index)
            yield live.at(Place.BACKWARD, index, each, Column.UNSHARDED_GRADIENTS)
            live.add(Column.UNSHARDED_GRADIENTS, self._chain.blocks[index].made_elements * each)
            if unit is not None and unit.first == index:
                yield self._join(live, unit, self._sizes[unit.index])
                live.drop(Column.GATHERED, self._sizes[unit.index].gathered)
                if self._prefetches(BackwardPrefetch.POST) and unit.index:
                    ahead = self._units[unit.index - 1]
                    yield self._open(live, ahead, gathered, Place.REDUCE, index)
                yield self._reduce(live, span, unit, self._sizes[unit.index])
        if self._root is not None and self._root_sizes is not None:
            yield self._join(live, self._root, self._root_sizes)
            live.drop(Column.GATHERED, self._root_sizes.gathered)
            yield self._reduce(live, span, self._root, self._root_sizes)

    def _start(self, span: Span) -> Live:
        live = Live(carried(self._chain, span))
        live.add(Column.GATHERED, self._root_sizes.gathered if self._root_sizes else 0)
        return live

    def _prefetches(self, when: BackwardPrefetch) -> bool:
        return self._chain.schedule.backward_prefetch is when

    def _open(
        self, live: Live, unit: WrapUnit, gathered: set[int], place: Place, block: int
    ) -> Stretch:
        """Gather a unit by way of a cast of its shard, unless it is gathered."""
        sizes = self._sizes[unit.index]
        if unit.index in gathered:
            return live.at(place, block)
        gathered.add(unit.index)
        live.add(Column.GATHERED, sizes.gathered + sizes.cast)
        seen = live.at(place, block)
        live.drop(Column.GATHERED, sizes.cast)
        return seen

    def _join(self, live: Live, unit: WrapUnit, sizes: Buffers) -> Stretch:
        """Join the gradients of views into the flat parameter's."""
        live.add(Column.UNSHARDED_GRADIENTS, sizes.gathered)
        seen = live.at(Place.REDUCE, unit.first)
        live.drop(Column.UNSHARDED_GRADIENTS, sizes.gradients)
        return seen

    def _reduce(self, live: Live, span: Span, unit: WrapUnit, sizes: Buffers) -> Stretch:
        """Cast, reduce into the shard's gradient, and free the whole one, or keep it (no_sync)."""
        recipe = self._chain.recipe
        if not span.reduces:
            return live.at(Place.REDUCE, unit.first)
        cast = sizes.reduce_input if recipe.reduce != recipe.compute else 0
        live.add(Column.REDUCE, cast + sizes.reduce_output)
        reduced = live.at(Place.REDUCE, unit.first)
        live.drop(Column.UNSHARDED_GRADIENTS, sizes.gathered)
        live.drop(Column.REDUCE, cast)
        casts = recipe.reduce != recipe.gradient
        live.add(Column.GRADIENTS, sizes.shard_gradients if casts else 0)
        cast_back = live.at(Place.REDUCE, unit.first)
        live.drop(Column.REDUCE, sizes.reduce_output)
        accumulates = unit.first >= span.gradients_from
        adds = self._chain.keeps_gradients and not accumulates
        if casts and not adds:
            live.drop(Column.GRADIENTS, sizes.shard_gradients)
        elif adds and not casts:
            live.add(Column.GRADIENTS, sizes.shard_gradients)
        return highest(reduced, cast_back)
