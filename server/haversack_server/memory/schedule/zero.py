"""ZeRO 1 and 2 as DeepSpeed runs them: parameters whole, gradients by way of a reduce bucket.

The bucket is allocated at its full size when a backward starts and freed when it ends; with
overlap_comm there are two. A gradient is copied into the bucket as soon as it is made, so one
parameter's is whole beside it. Stage 2 then keeps the rank's own partition, stage 1 keeps all.
The step converts the partition to fp32. With offload_optimizer stage 2 sends its gradients to the
host by way of a buffer as large as the largest parameter, which stays. Source: DeepSpeed,
deepspeed/runtime/zero/stage_1_and_2.py (``ipg_buffer``, ``copy_grads_in_partition``, ``step``).
"""

from collections.abc import Iterator

from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Live, Place, Stretch
from haversack_server.memory.schedule.span import Span


class Zero:
    """One rank's buffers under ZeRO 1 and 2."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._sharded = chain.degrees.shards_gradients or not chain.keeps_gradients

    def standing(self, step: int) -> dict[Column, int]:
        """Give what lives as long as the job: the buffer by way of which gradients leave."""
        stage_3 = self._chain.degrees.sharding is Sharding.ZERO_3
        if stage_3 or not self._chain.offload.optimizer:
            return {}
        largest = max(block.unit.largest for block in self._chain.blocks)
        return {Column.REDUCE: largest * self._chain.recipe.gradient}

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Run; nothing is gathered."""
        live = Live(self._carried(span))
        for index in range(span.start, span.stop):
            yield live.at(Place.FORWARD, index)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Make gradients one parameter at a time, and reduce them by the bucket."""
        each = self._chain.recipe.gradient
        live = Live(self._carried(span))
        live.add(Column.REDUCE, bucket_bytes(self._chain))
        for index in range(span.stop - 1, span.start - 1, -1):
            block = self._chain.blocks[index]
            there = index >= span.gradients_from
            one = block.unit.largest * each if self._sharded or there else 0
            live.add(Column.UNSHARDED_GRADIENTS, one)
            yield live.at(Place.BACKWARD, index, 0 if one else each)
            live.drop(Column.UNSHARDED_GRADIENTS, one)
            if not there:
                live.add(Column.GRADIENTS, self._kept_elements(index) * each)

    def _kept_elements(self, index: int) -> int:
        block = self._chain.blocks[index]
        if not self._chain.keeps_gradients:
            return 0
        return block.unit.trained_shard if self._sharded else block.made_elements

    def _carried(self, span: Span) -> dict[Column, int]:
        """Give the gradients that earlier microbatches left."""
        count = len(self._chain.blocks)
        elements = sum(self._kept_elements(index) for index in range(span.gradients_from, count))
        return {Column.GRADIENTS: elements * self._chain.recipe.gradient}


def bucket_bytes(chain: Chain) -> int:
    """Give the bytes of the reduce buckets: one, or two that take turns.

    A contiguous bucket has its full size even where the model is smaller; otherwise gradients are
    flattened into a new tensor once there are so many. Stage 1 ignores both settings (engine.py).
    """
    settings, elements = chain.schedule, chain.schedule.reduce_bucket_elements
    whole = sum(block.unit.elements for block in chain.blocks)
    if chain.degrees.sharding is Sharding.ZERO_1:
        return min(elements, whole) * chain.recipe.reduce
    if not settings.contiguous_gradients:
        elements = min(elements, whole)
    return elements * chain.recipe.reduce * (1 + settings.overlap_reduce)
