"""ZeRO 3 as DeepSpeed runs it: parameters fetched module by module, and kept while soon reused.

Fetched parameters arrive in a flat buffer and are copied out of it; up to prefetch_elements are
fetched ahead. After a module they are freed, unless they are used again within max_reuse_elements
of the trace (which goes through forward and backward), so those of the last layers stay from
forward to backward, max_live_elements of them at most. Parameters below persistent_elements are
never sharded. The rank's gradients have one flat buffer from the start, as has the reduce bucket;
reducing it flattens it once more. With offload_optimizer the gradients' buffer is on the host; with
offload_param a module's shards are copied to the device before they are gathered. Source:
DeepSpeed, deepspeed/runtime/zero/stage3.py (``grad_partitions_flat_buffer``,
``__ipg_bucket_flat_buffer``) and partitioned_param_coordinator.py (``__params_to_release``,
``fetch_sub_module``).
"""

from collections.abc import Iterator
from itertools import accumulate

from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Live, Place, Stretch
from haversack_server.memory.schedule.span import Span


class Zero3:
    """One rank's buffers under ZeRO 3."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        least = chain.schedule.persistent_elements
        self._wholes = [
            sum(whole for whole, _ in block.unit.parameters if whole >= least)
            if block.unit.parameters
            else block.unit.whole
            for block in chain.blocks
        ]
        self._later = [0, *accumulate(reversed(self._wholes))][-2::-1]

    def standing(self, step: int) -> dict[Column, int]:
        """Give persistent parameters, the gradients' flat buffer and the reduce bucket."""
        chain = self._chain
        persistent = sum(block.unit.elements for block in chain.blocks) - sum(self._wholes)
        bucket = chain.schedule.reduce_bucket_elements * chain.recipe.reduce
        return {
            Column.GATHERED: max(0, persistent) * chain.recipe.compute,
            Column.GRADIENTS: chain.states.gradient_bytes,
            Column.REDUCE: bucket if chain.schedule.contiguous_gradients else 0,
        }

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Fetch and run; what is reused soon stays."""
        for index in range(span.start, span.stop):
            kept = self._kept(range(span.start, index))
            ahead = sum(self._wholes[index + 1 : span.stop])
            yield from self._run(Live(), Place.GATHER, Place.FORWARD, index, kept, ahead)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Fetch what forward did not leave, and reduce by the bucket."""
        for index in range(span.stop - 1, span.start - 1, -1):
            before = range(span.start, index)
            kept = self._kept(before)
            ahead = sum(self._wholes[place] for place in before) - kept
            live = Live({Column.REDUCE: self._flattened()})
            one = self._chain.blocks[index].unit.largest * self._chain.recipe.gradient
            live.add(Column.UNSHARDED_GRADIENTS, one)
            yield from self._run(live, Place.GATHER_BACK, Place.BACKWARD, index, kept, ahead)

    def _flattened(self) -> int:
        """Give the bytes of a bucket's gradients, flattened for their reduction."""
        chain = self._chain
        whole = sum(block.unit.elements for block in chain.blocks)
        return min(chain.schedule.reduce_bucket_elements, whole) * chain.recipe.reduce

    def _run(
        self, live: Live, gather: Place, run: Place, index: int, kept: int, ahead: int
    ) -> Iterator[Stretch]:
        """Copy the unit out of the flat buffer in which it arrives, then run it."""
        each, settings, own = self._chain.recipe.compute, self._chain.schedule, self._wholes[index]
        live.add(Column.GATHERED, (kept + own) * each)
        live.add(Column.PREFETCHED, own * each + self._arriving(index))
        yield live.at(gather, index)
        room = max(0, settings.max_live_elements - kept - own)
        live.drop(Column.PREFETCHED, own * each + self._arriving(index))
        live.add(Column.PREFETCHED, min(ahead, settings.prefetch_elements, room) * each)
        yield live.at(run, index)

    def _arriving(self, index: int) -> int:
        """Bytes of a shard's copy on the device, where shards live on the host."""
        if not self._chain.offload.parameters:
            return 0
        return self._chain.blocks[index].unit.shard * self._chain.recipe.parameter

    def _kept(self, places: range) -> int:
        """Elements of those blocks that stay gathered from forward to backward."""
        settings = self._chain.schedule
        kept = sum(
            self._wholes[place]
            for place in places
            # Later blocks run forward and backward before this one is needed again.
            if 2 * self._later[place] < settings.max_reuse_elements
        )
        return min(kept, settings.max_live_elements)
