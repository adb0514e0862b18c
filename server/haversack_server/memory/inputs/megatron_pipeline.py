"""The pipeline of Megatron-LM's arguments: chunks of layers, uneven stages, a layout.

Knows how layers are divided over stages, and nothing of what a stage then holds.
"""

from haversack.parallelism import PipelineSchedule
from haversack_server.memory.inputs.megatron_layout import layers_of, stages_of
from haversack_server.memory.inputs.reader import Reader

_LAYOUT = "pipeline-model-parallel-layout"


def read_pipeline(reader: Reader) -> None:
    """Find the chunks of layers on each stage; more than one makes the schedule interleaved."""
    chunks = reader.whole("num-virtual-stages-per-pipeline-rank", least=1)
    layers_each = reader.whole("num-layers-per-virtual-pipeline-stage", least=1)
    layers = reader.whole("num-layers", least=1)
    stages = reader.whole("pipeline-model-parallel-size", least=1) or 1
    key = "num-virtual-stages-per-pipeline-rank"
    if chunks is None and layers_each is not None and layers is not None:
        key = "num-layers-per-virtual-pipeline-stage"
        if layers % (stages * layers_each):
            parts = f"{stages} stages in chunks of {layers_each}"
            reader.refuse(key, f"{layers} layers do not divide over {parts}")
        chunks = max(1, layers // (stages * layers_each))
    if chunks is not None and chunks > 1 and stages > 1:
        reader.set("parallelism.virtual_stages", chunks, key)
        reader.set("parallelism.pipeline_schedule", PipelineSchedule.INTERLEAVED, key)
    if reader.has(_LAYOUT):
        _layout(reader, layers, stages)
    else:
        _stages(reader, layers, stages, chunks or 1)


def _layout(reader: Reader, layers: int | None, stages: int) -> None:
    """Find the stages of a layout; several for each rank are chunks of an interleaved schedule."""
    given = reader.given(_LAYOUT)
    listed = stages_of(given.value) if given else None
    counted = layers_of(listed) if listed else None
    if listed is None or len(listed) % stages or (counted and sum(counted) != layers):
        wanted = f"{stages} stages, or a multiple, of {layers} layers, such as Ett|tt|tt|ttL"
        reader.refuse(_LAYOUT, f"is not a layout that can be read; give {wanted}")
        return
    if counted is None:
        reader.unmodelled(_LAYOUT, "an embedding or a loss inside the pipeline")
        return
    reader.set("parallelism.stage_layers", counted, _LAYOUT)
    if len(listed) > stages:
        reader.set("parallelism.virtual_stages", len(listed) // stages, _LAYOUT)
        reader.set("parallelism.pipeline_schedule", PipelineSchedule.INTERLEAVED, _LAYOUT)


def _stages(reader: Reader, layers: int | None, stages: int, chunks: int) -> None:
    """Find uneven stages: a first or last of its own size, embedding or loss counted as a layer."""
    first = reader.whole("decoder-first-pipeline-num-layers")
    last = reader.whole("decoder-last-pipeline-num-layers")
    embedding = bool(reader.flag("account-for-embedding-in-pipeline-split"))
    loss = bool(reader.flag("account-for-loss-in-pipeline-split"))
    if layers is None or stages < 2 or not (first or last or embedding or loss):
        return
    key = "decoder-first-pipeline-num-layers" if first else "decoder-last-pipeline-num-layers"
    if chunks > 1:
        reader.unmodelled(key, "uneven stages of several chunks")
        return
    if embedding or loss:
        each = -(-(layers + embedding + loss) // stages)
        first, last = each - embedding, each - loss
    ends = [end for end in (first, last) if end is not None]
    inner = stages - len(ends)
    left = layers - sum(ends)
    if left < 0 or (left % inner if inner else left):
        reader.refuse(key, f"leaves {left} layers for {inner} stages; make them divide")
        return
    middle = [left // inner] * inner if inner else []
    start, end = ([first] if first is not None else []), ([last] if last is not None else [])
    reader.set("parallelism.stage_layers", tuple(start + middle + end), key)
