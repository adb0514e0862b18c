"""FSDP2's backward: gather, prefetch, run, reduce, free; the order of PyTorch's host code.

The unit before is gathered ahead of a unit's own backward. Afterwards a unit's parameters are
freed, its gradients are copied into the input of a reduction, and that input lives until the next
reduction. Units whose input needs no gradient (the embedding) are reduced in a final callback,
after the root unit. HSDP keeps every unit's all-reduce buffer to the end of backward, beside the
gradients where their types differ (pytorch pull request 179443).
"""

from collections.abc import Iterator, Sequence

from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Live, Part, Place, Stretch, highest
from haversack_server.memory.schedule.fsdp2_buffers import Buffers, buffers, carried
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.schedule.wrapping import WrapUnit


class Backward:
    """One backward pass of a rank; used once."""

    def __init__(
        self,
        chain: Chain,
        root: WrapUnit | None,
        units: Sequence[WrapUnit],
        sizes: Sequence[Buffers],
        span: Span,
    ) -> None:
        self._chain = chain
        self._root = root
        self._units = [unit for unit in units if span.start <= unit.first < span.stop]
        self._sizes = sizes
        self._span = span
        self._first_of = {unit.first: unit for unit in self._units}
        self._last_of = {unit.last: unit for unit in self._units}
        self._live = Live(carried(chain, span))
        self._gathered: set[int] = set()
        self._reducing = 0

    def run(self) -> Iterator[Stretch]:
        """Give every stretch of the pass."""
        self._start()
        each, kept = self._chain.recipe.compute, Column.UNSHARDED_GRADIENTS
        for index in range(self._span.stop - 1, self._span.start - 1, -1):
            part = Part.ALL
            if index in self._last_of:
                if self._chain.blocks[index].is_head:
                    part = Part.REST
                    yield self._before_head(self._last_of[index])
                yield self._gather(self._last_of[index])
            yield self._live.at(Place.BACKWARD, index, each, kept, part)
            made = self._chain.blocks[index].made_elements * each
            self._live.add(Column.UNSHARDED_GRADIENTS, made)
            if index in self._first_of and index > 0:
                yield self._finish(self._first_of[index], self._sizes_of(index))
        if self._root is not None:
            yield self._finish(self._root, buffers(self._chain, self._root))
        if self._span.start == 0 and 0 in self._first_of:
            yield self._finish(self._first_of[0], self._sizes_of(0))

    def _before_head(self, unit: WrapUnit) -> Stretch:
        """Differentiate the loss, while the head's unit is on its way and not yet copied out."""
        if unit.index not in self._gathered:
            self._gather_ahead(unit, unit.last)
        each = self._chain.recipe.compute
        return self._live.at(Place.BACKWARD, unit.last, each, Column.UNSHARDED_GRADIENTS, Part.LOSS)

    def _sizes_of(self, first: int) -> Buffers:
        return self._sizes[self._first_of[first].index]

    def _start(self) -> None:
        """Begin with what forward left, and with the last unit on its way."""
        live, settings = self._live, self._chain.schedule
        for unit in self._units:
            sizes = self._sizes[unit.index]
            if not settings.reshard_after_forward:
                live.add(Column.GATHERED, sizes.gathered)
                self._gathered.add(unit.index)
            else:
                live.add(Column.GATHERED, sizes.kept)
        if self._root is None:
            return
        sizes = buffers(self._chain, self._root)
        live.add(Column.GATHERED, sizes.gathered)
        if self._units and self._units[-1].index not in self._gathered:
            # The root's own backward comes first, and gathers the unit that ran last.
            self._gather_ahead(self._units[-1], self._units[-1].last)

    def _gather(self, unit: WrapUnit) -> Stretch:
        """Copy the unit out of its buffer, then gather those whose backward comes next."""
        live, sizes, seen = self._live, self._sizes[unit.index], []
        if unit.index not in self._gathered:
            seen.append(self._gather_ahead(unit, unit.last))
        if self._chain.schedule.reshard_after_forward:
            live.add(Column.GATHERED, sizes.gathered)
            seen.append(live.at(Place.GATHER_BACK, unit.last))
            live.drop(Column.PREFETCHED, sizes.copy)
            live.drop(Column.GATHERED, sizes.kept)
        place = unit.index - self._units[0].index
        depth = max(1, self._chain.schedule.prefetch_units)
        for ahead in reversed(self._units[max(0, place - depth) : place]):
            if ahead.index not in self._gathered:
                seen.append(self._gather_ahead(ahead, unit.last))
        seen.append(live.at(Place.GATHER_BACK, unit.last))
        return highest(*seen)

    def _gather_ahead(self, unit: WrapUnit, block: int) -> Stretch:
        """Fill the unit's all-gather buffer; shards that were kept after forward need no cast."""
        self._gathered.add(unit.index)
        sizes = self._sizes[unit.index]
        cast = sizes.kept if sizes.kept and sizes.cast else sizes.cast
        self._live.add(Column.PREFETCHED, sizes.copy + cast)
        seen = self._live.at(Place.GATHER_BACK, block)
        self._live.drop(Column.PREFETCHED, cast)
        return seen

    def _finish(self, unit: WrapUnit, sizes: Buffers) -> Stretch:
        """Free the unit, and reduce its gradients or keep them whole."""
        live = self._live
        live.drop(Column.GATHERED, sizes.gathered)
        if not self._span.reduces:
            live.drop(Column.UNSHARDED_GRADIENTS, sizes.gradients)
            live.add(Column.UNSHARDED_GRADIENTS, 0 if self._span.unreduced else sizes.unreduced)
            return live.at(Place.REDUCE, unit.first)
        gradients = sizes.gradients
        if self._span.unreduced:
            live.drop(Column.UNSHARDED_GRADIENTS, gradients)
            gradients = sizes.unreduced
        live.drop(Column.REDUCE, self._reducing)
        self._reducing = sizes.reduce_input
        live.add(Column.REDUCE, self._reducing)
        copied_in = live.at(Place.REDUCE, unit.first)
        live.drop(Column.UNSHARDED_GRADIENTS, gradients)
        return highest(copied_in, self._reduce(unit, sizes))

    def _reduce(self, unit: WrapUnit, sizes: Buffers) -> Stretch:
        """Make the shard's gradients, in the reduction's type first and then in their own."""
        live, recipe = self._live, self._chain.recipe
        accumulates = unit.first >= self._span.gradients_from
        casts = recipe.reduce != recipe.gradient
        live.add(Column.REDUCE, sizes.reduce_output)
        if casts:
            live.add(Column.GRADIENTS, sizes.shard_gradients)
        reduced = live.at(Place.REDUCE, unit.first)
        live.drop(Column.REDUCE, sizes.reduce_output)
        adds = self._chain.keeps_gradients and not accumulates
        if casts and not adds:
            live.drop(Column.GRADIENTS, sizes.shard_gradients)
        elif adds and not casts:
            live.add(Column.GRADIENTS, sizes.shard_gradients)
        if self._chain.degrees.dp_replicate > 1 and (casts or accumulates):
            live.add(Column.ALL_REDUCE, sizes.reduce_output)
        return reduced
