"""Every pass of a step with what stands beside it: all that its blocks do not hold themselves.

Knows which passes there are, and the columns that are the same at all of their moments: states,
workspaces, what other microbatches and stages hold. Knows no activations of the pass itself.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from haversack_server.memory import pipeline
from haversack_server.memory.chain import Chain
from haversack_server.memory.laying import Laid
from haversack_server.memory.moments import Column
from haversack_server.memory.optimizers.kinds import KINDS
from haversack_server.memory.pipeline import Pass
from haversack_server.memory.schedule.choose import Schedule
from haversack_server.memory.schedule.span import Span


def passes(
    chain: Chain,
    schedule: Schedule,
    retained: Sequence[int],
    gradients: Sequence[int],
    step: int,
) -> Iterator[Laid]:
    """The highest forward and backward of each kind: of a first microbatch, which finds no
    gradients, and of a later one, for each chunk of layers.

    ``retained`` bytes of other microbatches are in flight beside them.
    """
    for made in pipeline.passes(chain.pipeline, retained, gradients, chain.accumulation, step=step):
        yield laid(chain, schedule, made, step)


def laid(chain: Chain, schedule: Schedule, made: Pass, step: int) -> Laid:
    """Put a pass between what stands beside it."""
    columns = standing(chain, schedule, step)
    # An optimizer in the backward makes its temporaries there.
    in_backward = chain.schedule.updates_in_backward and not made.forward
    columns[Column.TEMPORARIES] = chain.states.temporary_bytes if in_backward else 0
    columns[Column.WORKSPACES] = chain.workspace_bytes
    columns[Column.WEIGHT_COPIES] = chain.weight_copies_bytes
    columns[Column.ON_THE_WAY] = chain.on_the_way_bytes
    columns[Column.BATCH] = chain.batch_bytes
    columns[Column.IN_FLIGHT] = made.in_flight_bytes
    columns[Column.STAGE] = made.stage_bytes
    columns[Column.GATHERED] += _gathered_elsewhere(chain, made)
    columns[Column.HELD] = held_by_caller(chain) if _is_held(chain, made) else 0
    columns[Column.GRAPH] = _graph_before(chain, made, step)
    name = f"step {step} {made.name}".rstrip()
    return Laid(name, made.forward, _span(chain, made), tuple(columns))


def _is_held(chain: Chain, made: Pass) -> bool:
    """Whether the caller has an output: in backward, and in the forward of a later microbatch.

    There the variable names the output of the microbatch before until the new one is assigned.
    """
    later = made.gradients_from <= made.start and chain.pipeline.stages == 1
    return not made.forward or later


def _graph_before(chain: Chain, made: Pass, step: int) -> int:
    """What the graph of the microbatch before keeps, in the forward that takes its name away.

    That of a backward's own microbatch is among what the blocks retain.
    """
    is_first = step == 1 and made.gradients_from > made.start
    return 0 if is_first or not made.forward else chain.named_graph_bytes


def _gathered_elsewhere(chain: Chain, made: Pass) -> int:
    """Units of a stage's other chunks, where a unit stays gathered after its forward.

    Some microbatch of every chunk is in flight for most of a step (torch.distributed.pipelining
    reshards in the last microbatch's backward only).
    """
    if chain.schedule.reshard_after_forward or not chain.degrees.shards_parameters:
        return 0
    others = (*chain.blocks[: made.start], *chain.blocks[made.stop :])
    return sum(block.unit.whole for block in others) * chain.recipe.compute


def _span(chain: Chain, made: Pass) -> Span:
    """Say which gradients are there; without syncs only the last microbatch reduces."""
    unsynced = chain.schedule.no_sync and chain.accumulation > 1
    first = made.gradients_from > made.start
    return Span(
        start=made.start,
        stop=made.stop,
        gradients_from=made.gradients_from,
        reduces=not (unsynced and first),
        unreduced=unsynced and not first,
    )


def gradients_from(chain: Chain) -> list[int]:
    """Bytes of the gradients of each block and of those after it; the last entry is 0."""
    sharded = chain.degrees.shards_gradients
    each = chain.recipe.gradient if chain.keeps_gradients else 0
    elements = [
        block.unit.trained_shard if sharded else block.made_elements for block in chain.blocks
    ]
    return [size * each for size in reversed(list(accumulate(reversed(elements), initial=0)))]


def standing(chain: Chain, schedule: Schedule, step: int) -> list[int]:
    """What is there through a step; step 0 is before the first."""
    columns = [0] * len(Column)
    columns[Column.PARAMETERS] = chain.states.parameter_bytes
    columns[Column.MASTER] = chain.states.master_bytes
    columns[Column.MOMENTS] = _moments(chain, step)
    for column, size_bytes in schedule.standing(step).items():
        columns[column] += size_bytes
    return columns


def _moments(chain: Chain, step: int) -> int:
    """Most optimizers make their moments in the first step."""
    from_start = KINDS[chain.recipe.optimizer].from_start
    return chain.states.moment_bytes if step > 1 or from_start else 0


def held_by_caller(chain: Chain) -> int:
    """Bytes of outputs that the caller keeps."""
    return sum(map(_HELD, chain.blocks))


_HELD = attrgetter("held_by_caller_bytes")
