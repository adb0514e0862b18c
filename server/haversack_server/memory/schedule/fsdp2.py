"""FSDP2: ``fully_shard`` of PyTorch, in the order of its own host code (read at torch 2.13.0).

Forward: a unit's shards are copied (and cast) into one all-gather buffer, which is copied out into
the unit's parameters; the buffer lives on until the next unit has its own. Backward:
``fsdp2_backward``. The root unit stays gathered from its forward to the end of backward.
Source: ``torch.distributed.fsdp._fully_shard``, ``_fsdp_param_group``, ``_fsdp_collectives`` and
``_fsdp_state``; checked against PyTorch's own FSDPMemTracker (``tests.bench.fsdp2``).
"""

from collections.abc import Iterator

from haversack_server.memory.moments import Column, Live, Place, Stretch, highest
from haversack_server.memory.schedule.fsdp2_backward import Backward
from haversack_server.memory.schedule.fsdp2_buffers import Buffers, carried
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.schedule.wrapped import Wrapped
from haversack_server.memory.schedule.wrapping import WrapUnit


class Fsdp2(Wrapped):
    """One rank's buffers under ``fully_shard``."""

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Gather, run and free one unit after the other."""
        live = Live(carried(self._chain, span))
        held = self._open_root(live)
        pending: set[int] = set()
        for index in range(span.start, span.stop):
            unit = self._of_block.get(index)
            if unit is not None and unit.first == index:
                yield self._gather(live, unit, held, pending, span.stop)
                held = self._sizes[unit.index].copy
            yield live.at(Place.FORWARD, index)
            if unit is not None and unit.last == index and self._reshards:
                sizes = self._sizes[unit.index]
                live.drop(Column.GATHERED, sizes.gathered - sizes.kept)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Gather, run, reduce and free, from the last block to the first."""
        return Backward(self._chain, self._root, self._units, self._sizes, span).run()

    def _open_root(self, live: Live) -> int:
        """Gather the root unit; its all-gather buffer is left until the first unit has its own."""
        sizes = self._root_sizes
        if sizes is None:
            return 0
        live.add(Column.GATHERED, sizes.gathered)
        live.add(Column.PREFETCHED, sizes.copy)
        return sizes.copy

    def _gather(
        self, live: Live, unit: WrapUnit, held: int, pending: set[int], stop: int
    ) -> Stretch:
        """Copy in beside the buffer of the unit before, copy out, then gather those ahead."""
        sizes, seen = self._sizes[unit.index], []
        if unit.index not in pending:
            seen.append(copy_in(live, sizes, Place.GATHER, unit.first))
        live.add(Column.GATHERED, sizes.gathered)
        seen.append(live.at(Place.GATHER, unit.first))
        # A local variable of wait_for_unshard names the buffer before until it returns.
        live.drop(Column.PREFETCHED, held)
        depth = self._chain.schedule.prefetch_units
        for ahead in self._units[unit.index + 1 : unit.index + 1 + depth]:
            if ahead.index not in pending and ahead.last < stop:
                seen.append(copy_in(live, self._sizes[ahead.index], Place.GATHER, unit.first))
                pending.add(ahead.index)
        return highest(*seen)


def copy_in(live: Live, sizes: Buffers, place: Place, block: int) -> Stretch:
    """Fill a unit's all-gather buffer, which stays, by way of a cast of the shard, which goes."""
    live.add(Column.PREFETCHED, sizes.copy + sizes.cast)
    seen = live.at(place, block)
    live.drop(Column.PREFETCHED, sizes.cast)
    return seen
