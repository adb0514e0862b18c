"""Parameters that every rank holds whole: plain PyTorch, DistributedDataParallel, Megatron-LM.

``DistributedDataParallel`` keeps buckets for all gradients beside them, and from the second step on
the first ones too (its buckets are rebuilt after the first iteration; measured on an H200 with
torch 2.11, on one rank). With ``gradient_as_bucket_view`` the gradients are the buckets; one copy
is counted then. The cap of a bucket moves none of it. Megatron-LM's gradients have one fp32 buffer
from the start, which is also what its distributed optimizer reduces, so nothing is beside it.
An optimizer that steps in the backward leaves one parameter's gradient alive at a time, and a tied
weight's until its second half is made.
"""

from collections.abc import Iterator

from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain, ChainBlock
from haversack_server.memory.moments import Column, Live, Place, Stretch
from haversack_server.memory.schedule.span import Span


class Whole:
    """One rank's buffers where nothing is gathered and gradients are whole."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        degrees = chain.degrees
        self._ddp = degrees.sharding is Sharding.REPLICATED and degrees.dp_replicate > 1
        views = self._ddp and chain.schedule.gradient_as_bucket_view
        self._stand = chain.gradients_stand or views

    def standing(self, step: int) -> dict[Column, int]:
        """Give the buckets of DistributedDataParallel, or the buffer that gradients live in."""
        size_bytes = self._chain.states.gradient_bytes
        if self._stand:
            return {Column.GRADIENTS: size_bytes}
        copies = 2 if step > 1 else 1
        return {Column.REDUCE: copies * size_bytes} if self._ddp else {}

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Run; nothing is gathered."""
        live = Live(self._carried(span))
        for index in range(span.start, span.stop):
            yield live.at(Place.FORWARD, index)

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Make gradients, or add to those that are there: one parameter's at a time is new."""
        each = self._chain.recipe.gradient
        live = Live(self._carried(span))
        for index in range(span.stop - 1, span.start - 1, -1):
            block = self._chain.blocks[index]
            if not self._chain.keeps_gradients:
                yield self._used_up(live, block, index)
                continue
            if index >= span.gradients_from and not self._stand:
                one = block.unit.largest * each
                live.add(Column.GRADIENTS, one)
                yield live.at(Place.BACKWARD, index)
                live.drop(Column.GRADIENTS, one)
                continue
            new = 0 if self._stand else each
            yield live.at(Place.BACKWARD, index, new)
            live.add(Column.GRADIENTS, block.made_elements * new)

    def _used_up(self, live: Live, block: ChainBlock, index: int) -> Stretch:
        """Make a block's gradients one by one; each is used before the next is made.

        The head's largest comes right after the loss, so it counts as it is made.
        """
        each = self._chain.recipe.gradient
        one = 0 if block.is_head else max(block.unit.largest, block.again_elements) * each
        live.add(Column.GRADIENTS, one)
        seen = live.at(Place.BACKWARD, index, each if block.is_head else 0)
        live.drop(Column.GRADIENTS, one)
        live.add(Column.GRADIENTS, (block.tied_elements - block.again_elements) * each)
        return seen

    def _carried(self, span: Span) -> dict[Column, int]:
        """Give the gradients that earlier microbatches left, unless they stand anyway."""
        if self._stand or not self._chain.keeps_gradients:
            return {}
        there = self._chain.blocks[span.gradients_from :]
        elements = sum(block.made_elements for block in there)
        return {Column.GRADIENTS: elements * self._chain.recipe.gradient}
