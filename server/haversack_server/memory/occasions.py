"""What a job holds beside training steps: quantizing its weights, evaluation, saving and loading.

Evaluation runs forward without gradients, so blocks keep nothing but their output. A sharded
checkpoint moves each rank's own shards between device and disk and gathers nothing; a full one
gathers tensor by tensor (FSDP2, ``full_state_dict`` with ``cpu_offload``), unit by unit (FSDP1's
FULL_STATE_DICT) or module by module (ZeRO 3's ``gather_16bit_weights_on_model_save``). Loading
makes the optimizer state first, by a step with gradients of zero
(``torch.distributed.checkpoint.state_dict``). Knows no words beyond the names of moments.
"""

from collections.abc import Iterator

from haversack.parallelism import Sharding
from haversack.run import Occasion
from haversack_server.memory.chain import Chain, ChainBlock
from haversack_server.memory.model_loading import QUANTIZING
from haversack_server.memory.moments import Column, Place, Stretch
from haversack_server.memory.schedule.choose import Schedule
from haversack_server.memory.schedule.span import Span

Columns = list[int]


def occasions(
    chain: Chain, schedule: Schedule, standing: Columns
) -> Iterator[tuple[str, str, Columns]]:
    """Give phase, name and bytes by column of the highest moment of each occasion.

    ``standing`` is what is there from init to the end; moments of the optimizer stand too.
    """
    after = list(standing)
    after[Column.MOMENTS] = chain.states.moment_bytes
    after[Column.WORKSPACES] = chain.workspace_bytes
    after[Column.WEIGHT_COPIES] = chain.weight_copies_bytes
    if Occasion.EVALUATION in chain.schedule.occasions:
        yield _evaluation(chain, schedule, after)
    gathered = _gathered_bytes(chain) if chain.schedule.full_state_dict else 0
    after[Column.GATHERED] += gathered
    if Occasion.SAVING in chain.schedule.occasions:
        yield "saving", "saving a training checkpoint", list(after)
    if Occasion.LOADING in chain.schedule.occasions:
        after[Column.GRADIENTS] = chain.states.gradient_bytes
        after[Column.TEMPORARIES] = max(0, chain.states.temporary_bytes - gathered)
        yield "loading", "loading a training checkpoint", after


def quantizing(chain: Chain) -> Iterator[tuple[str, str, Columns]]:
    """Give the height of making and loading the model, where that takes more than the model."""
    if chain.loading is None:
        return
    columns = [0] * len(Column)
    columns[Column.PARAMETERS] = min(chain.states.parameter_bytes, chain.loading.peak_bytes)
    columns[Column.CONVERSION] = chain.loading.peak_bytes - columns[Column.PARAMETERS]
    yield QUANTIZING, "weights are quantized", columns


def _evaluation(chain: Chain, schedule: Schedule, standing: Columns) -> tuple[str, str, Columns]:
    """Run forward with nothing kept for a backward."""
    count = len(chain.blocks)
    span = Span(start=0, stop=count, gradients_from=count)
    highest: Columns = []
    name = ""
    for stretch in schedule.forward(span):
        block = chain.blocks[stretch.block]
        columns = [sum(pair) for pair in zip(standing, stretch.columns, strict=True)]
        columns[Column.BATCH] += chain.batch_bytes
        columns[Column.LOGITS if block.is_head else Column.RUNNING] += _running(stretch, block)
        if sum(columns) > sum(highest):
            highest, name = columns, f"evaluation {block.name}"
    return "evaluation", name, highest


def _running(stretch: Stretch, block: ChainBlock) -> int:
    """What a block adds without gradients: as where it recomputes, since nothing is saved."""
    if stretch.place is Place.GATHER:
        return block.input_gradient_bytes
    least = min(option.forward_peak_bytes for option in block.options)
    return least + block.input_gradient_bytes - block.passing_input_bytes


def _gathered_bytes(chain: Chain) -> int:
    """Bytes of what a full checkpoint gathers at once; nothing where parameters are whole."""
    if not chain.degrees.shards_parameters:
        return 0
    units = [block.unit for block in chain.blocks]
    if chain.degrees.sharding is Sharding.FSDP2:
        return max(unit.largest for unit in units) * chain.recipe.parameter
    return max(unit.elements for unit in units) * chain.recipe.parameter
