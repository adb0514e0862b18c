"""Which schedule a chain runs under: one class per framework, behind one protocol."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Stretch
from haversack_server.memory.schedule.fsdp1 import Fsdp1
from haversack_server.memory.schedule.fsdp2 import Fsdp2
from haversack_server.memory.schedule.ideal import Ideal
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.schedule.whole import Whole
from haversack_server.memory.schedule.zero import Zero
from haversack_server.memory.schedule.zero3 import Zero3

_DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)


class Schedule(Protocol):
    """What a framework holds beside model states and activations, stretch by stretch.

    The columns of a stretch hold gradients too, in whatever form they are there; what stands is
    beside them.
    """

    def standing(self, step: int) -> Mapping[Column, int]:
        """Give what stands through a step; step 0 is before the first."""
        ...

    def forward(self, span: Span) -> Iterator[Stretch]:
        """Lay out the forward of the blocks of a span."""
        ...

    def backward(self, span: Span) -> Iterator[Stretch]:
        """Lay out their backward."""
        ...


def schedule_of(chain: Chain) -> Schedule:
    """Make the schedule that a chain runs under."""
    return schedule_class(chain)(chain)


def schedule_class(chain: Chain) -> Callable[[Chain], Schedule]:
    """Choose by the kind of sharding; states that one rank holds whole need no schedule.

    DeepSpeed offloads the states of a single rank by the same code.
    """
    degrees = chain.degrees
    if chain.schedule.idealised and degrees.shards_parameters:
        return Ideal
    if degrees.sharding is Sharding.FSDP2:
        return Fsdp2
    if degrees.sharding is Sharding.FSDP1:
        return Fsdp1
    several = degrees.shard_ranks > 1
    if degrees.sharding is Sharding.ZERO_3 and (several or chain.offload.parameters):
        return Zero3
    if degrees.sharding in _DEEPSPEED and (several or chain.offload.optimizer):
        return Whole if chain.gradients_stand else Zero
    return Whole
