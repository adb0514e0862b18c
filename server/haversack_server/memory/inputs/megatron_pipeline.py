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
    if chunks is not None and stages > 1:
        reader.set("parallelism.virtual_stages", chunks, key)
    if chunks is not None and chunks > 1 and stages > 1:
        reader.set("parallelism.pipeline_schedule", PipelineSchedule.INTERLEAVED, key)
    _groups(reader, stages)
    if reader.has(_LAYOUT):
        _layout(reader, layers, stages)
    else:
        _stages(reader, layers, stages, chunks or 1)


def _groups(reader: Reader, stages: int) -> None:
    """Find how many microbatches go through a chunk before the next: by default one a stage."""
    key = "microbatch-group-size-per-virtual-pipeline-stage"
    group = reader.whole(key, least=1)
    if group is not None and group != stages and stages > 1:
        reader.unmodelled(key, "groups of microbatches of another size than the stages")


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
        reader.unmodelled(_LAYOUT, "an embedding, a loss or a prediction inside the pipeline")
        return
    predictors, wanted_predictors = "".join(listed).count("m"), reader.whole("mtp-num-layers") or 0
    if predictors != wanted_predictors:
        reader.refuse(
            _LAYOUT,
            f"has {predictors} layers m that predict further tokens, but mtp-num-layers is "
            f"{wanted_predictors}; make them equal",
        )
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
    if layers is None or stages < 2:
        return
    if embedding or loss:
        _counted_ends(reader, layers, stages * chunks, (embedding, loss))
    elif first or last:
        _uneven_ends(reader, layers, (stages, chunks), (first, last))


def _counted_ends(reader: Reader, layers: int, parts: int, ends: tuple[bool, bool]) -> None:
    """Divide layers, an embedding and a loss evenly over all chunks of all stages."""
    embedding, loss = ends
    side = "embedding" if embedding else "loss"
    key = f"account-for-{side}-in-pipeline-split"
    total = layers + embedding + loss
    if total % parts:
        reader.refuse(key, f"makes {total} of {layers} layers, which {parts} stages do not divide")
        return
    counts = [total // parts] * parts
    counts[0] -= embedding
    counts[-1] -= loss
    reader.set("parallelism.stage_layers", tuple(counts), key)


def _uneven_ends(
    reader: Reader, layers: int, parts: tuple[int, int], given: tuple[int | None, int | None]
) -> None:
    """Give the ends their own number of layers, and divide what is left over the other stages."""
    (stages, chunks), (first, last) = parts, given
    key = "decoder-first-pipeline-num-layers" if first else "decoder-last-pipeline-num-layers"
    ends = [end for end in (first, last) if end is not None]
    inner = stages - len(ends)
    left = layers - sum(ends)
    if left < 0 or (left % inner if inner else left):
        reader.refuse(key, f"leaves {left} layers for {inner} stages; make them divide")
        return
    middle = [left // inner] * inner if inner else []
    start, end = ([first] if first is not None else []), ([last] if last is not None else [])
    counts = [*start, *middle, *end]
    if any(count % chunks for count in counts):
        reader.refuse(key, f"gives stages of {counts} layers, which {chunks} chunks do not divide")
        return
    each = tuple(count // chunks for count in counts)
    reader.set("parallelism.stage_layers", each * chunks, key)
