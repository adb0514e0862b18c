"""Pipeline stages: which blocks are on each, and the chain of every stage.

The layers are divided in the order of the model; with several chunks on each stage, chunk c of
stage p is the c * P + p th in that order (Megatron-LM's and PyTorch's interleaved schedules). The
embedding is on the first stage and the head on the last. A tied weight is then a replica on each
of the two, and their gradients are summed between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, PipelineSchedule
from haversack_server.memory.architecture import Unit, UnitKind
from haversack_server.memory.chain import Chain
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.pipeline import Chunk, Pipeline
from haversack_server.memory.states import rank_states

MOST_CHUNKS = 256  # each has passes of its own; the largest runs known have 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Layers of every chunk in the order of the model, and the order of microbatches."""

    stages: int
    layers: tuple[int, ...]
    schedule: PipelineSchedule

    @property
    def chunks(self) -> int:
        """Count the chunks of each stage."""
        return len(self.layers) // self.stages

    def blocks_of(self, stage: int) -> tuple[range, ...]:
        """Give the blocks of each chunk of a stage; 0 is the embedding, the last is the head."""
        made = []
        for place in range(stage, len(self.layers), self.stages):
            first, last = place == 0, place == len(self.layers) - 1
            start = 0 if first else 1 + sum(self.layers[:place])
            made.append(range(start, 1 + sum(self.layers[: place + 1]) + last))
        return tuple(made)


def division(parallelism: Parallelism, units: Sequence[Unit]) -> tuple[Division, tuple[str, ...]]:
    """Divide the layers; gives what was assumed beside it."""
    stages, chunks = parallelism.pp or 1, parallelism.virtual_stages or 1
    layers = sum(unit.kind is UnitKind.LAYER for unit in units)
    _check_pipeline(parallelism, units, layers)
    schedule = _schedule(parallelism, stages, chunks)
    given = parallelism.stage_layers
    if given:
        _check_layers(given, stages * chunks, layers)
        return Division(stages=stages, layers=given, schedule=schedule), ()
    parts = stages * chunks
    if layers < parts:
        raise InvalidRequestError(
            f"{layers} layers are fewer than the {parts} chunks of {stages} stages; "
            "use fewer stages, or give stage_layers with some of 0 layers",
            field="parallelism.pp" if layers < stages else "parallelism.virtual_stages",
        )
    each, more = divmod(layers, parts)
    even = tuple(each + (place < more) for place in range(parts))
    made = Division(stages=stages, layers=even, schedule=schedule)
    return made, _division_assumptions(made, parallelism)


def _check_pipeline(parallelism: Parallelism, units: Sequence[Unit], layers: int) -> None:
    """Refuse what has no stages: other models than a stack of layers, and too many of them."""
    stages, chunks = parallelism.pp or 1, parallelism.virtual_stages or 1
    if stages > 1 and layers != len(units) - 2:
        raise NotSupportedError(
            "parallelism.pp: stages of an encoder and a decoder are not modelled; use pp=1"
        )
    if stages * chunks > MOST_CHUNKS:
        raise InvalidRequestError(
            f"{stages} stages of {chunks} chunks are too many; at most {MOST_CHUNKS} chunks in all "
            "would do",
            field="parallelism.pp",
        )


def _schedule(parallelism: Parallelism, stages: int, chunks: int) -> PipelineSchedule:
    if stages == 1 and chunks > 1:
        raise InvalidRequestError(
            f"virtual_stages={chunks} needs pipeline stages; give pp above 1",
            field="parallelism.virtual_stages",
        )
    given = parallelism.pipeline_schedule
    if given is PipelineSchedule.UNSPECIFIED:
        one = PipelineSchedule.ONE_F_ONE_B
        return PipelineSchedule.INTERLEAVED if chunks > 1 else one
    if (given is PipelineSchedule.INTERLEAVED) != (chunks > 1):
        raise InvalidRequestError(
            f"{given.name} with {chunks} chunks on each stage; INTERLEAVED takes virtual_stages "
            "above 1, the other schedules take 1",
            field="parallelism.pipeline_schedule",
        )
    return given


def _check_layers(given: Sequence[int], parts: int, layers: int) -> None:
    if len(given) != parts or sum(given) != layers:
        raise InvalidRequestError(
            f"{len(given)} stages of {sum(given)} layers in all; the model has {layers} layers "
            f"and the pipeline {parts} stages (chunks of stages)",
            field="parallelism.stage_layers",
        )


# Runs of Megatron-LM whose record lacks their virtual stages took 1.4 to 1.5 times what is expected
# of the record (benchmark of Estimate, "as recorded").
_NO_CHUNKS = (
    "no virtual stages are stated: one chunk of layers on each stage; a run with more keeps more "
    "microbatches in flight, up to half more in all, so check that its arguments are complete"
)


def _division_assumptions(made: Division, parallelism: Parallelism) -> tuple[str, ...]:
    if made.stages == 1:
        return ()
    sizes = sorted(set(made.layers), reverse=True)
    even = f"{sizes[0]} on each" if len(sizes) == 1 else f"{sizes[0]} on the first, {sizes[1]} then"
    what = "chunks of stages" if made.chunks > 1 else "stages"
    assumed = [f"layers of {what}: {even}; the embedding on the first, the head on the last"]
    if parallelism.pipeline_schedule is PipelineSchedule.UNSPECIFIED:
        assumed.append(f"pipeline schedule: {made.schedule.name}")
    if parallelism.virtual_stages is None:
        assumed.append(_NO_CHUNKS)
    return tuple(assumed)


def stage_assumptions(made: Division, units: Sequence[Unit], profile: KernelProfile) -> list[str]:
    """Say what was taken of weights and outputs at the ends of a pipeline."""
    if made.stages == 1:
        return []
    assumed = []
    if any(unit.tied_to for unit in units):
        assumed.append("the tied weight is a replica on the first stage and on the last")
    if any(unit.shares for unit in units):
        assumed.append("the last stage, which predicts further tokens, has a replica of the table")
    if not profile.pipeline_frees_outputs:
        assumed.append(
            "the last stage's outputs are not returned (PyTorch's schedules keep those of every "
            "microbatch unless return_outputs=False)"
        )
    return assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What crosses from one stage to the next, and what every stage makes for itself.

    ``stream_bytes``: the residual stream of a microbatch. ``shared_bytes``: rotary tables and
    masks, which the embedding block has where there is one.
    """

    stream_bytes: int
    shared_bytes: int = 0


def untied(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Give the head a weight of its own where it runs the embedding's on another stage."""
    weights = {weight.name: weight for unit in units for weight in unit.parameters}

    def alone(unit: Unit) -> Unit:
        name = unit.tied_to or unit.shares
        if not name:
            return unit
        return replace(unit, parameters=(*unit.parameters, weights[name]), tied_to="", shares="")

    return tuple(map(alone, units))


def stage_chains(
    whole: Chain, made: Division, profile: KernelProfile, boundary: Boundary
) -> tuple[Chain, ...]:
    """Give the chain of every stage; the chain itself where there is one stage."""
    if made.stages == 1:
        return (whole,)
    return tuple(
        _stage_chain(whole, made, stage, profile, boundary) for stage in range(made.stages)
    )


def _stage_chain(
    whole: Chain, made: Division, stage: int, profile: KernelProfile, boundary: Boundary
) -> Chain:
    blocks, places = whole.blocks, made.blocks_of(stage)
    own = tuple(blocks[place] for chunk in places for place in chunk)
    parked = _parked_tensors(profile, made.chunks) * boundary.stream_bytes
    chunks: list[Chunk] = []
    for chunk in places:
        ends = _Ends(first=0 in chunk, last=len(blocks) - 1 in chunk)
        start = chunks[-1].stop if chunks else 0
        chunks.append(_chunk(range(start, start + len(chunk)), ends, parked, profile, boundary))
    return replace(
        whole,
        blocks=own,
        states=rank_states([block.unit for block in own], whole.recipe, whole.degrees, whole.kept),
        pipeline=Pipeline(
            stage=stage, stages=made.stages, schedule=made.schedule, chunks=tuple(chunks)
        ),
        step_ns=whole.step_ns * len(own) // len(blocks),
    )


def _parked_tensors(profile: KernelProfile, chunks: int) -> int:
    if chunks == 1:
        return profile.pipeline_parked_tensors
    return profile.pipeline_parked_tensors_interleaved


class _Ends(NamedTuple):
    """Whether a chunk is the first of the model, and whether it is the last."""

    first: bool
    last: bool


def _chunk(
    places: range, ends: _Ends, parked_bytes: int, profile: KernelProfile, boundary: Boundary
) -> Chunk:
    """Bytes at the two ends of a chunk; the first receives nothing, the last sends nothing."""
    stream, ahead = boundary.stream_bytes, profile.pipeline_receives_ahead
    # What was received into a standing buffer is no bytes of its own.
    received = 0 if ahead else stream
    return Chunk(
        start=places.start,
        stop=places.stop,
        received_bytes=0 if ends.first else received + boundary.shared_bytes,
        buffer_bytes=stream * ((not ends.first) + (not ends.last)) if ahead else 0,
        sent_bytes=stream if profile.pipeline_frees_outputs and not ends.last else 0,
        parked_bytes=0 if ends.first else parked_bytes,
    )
