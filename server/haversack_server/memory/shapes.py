"""The shape of a run: what one rank computes for a microbatch, with what was assumed beside it."""

from dataclasses import replace

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel, Parallelism
from haversack.run import Attention, Loss, Recompute, Training, TrainingRun
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.context_parallel import divided
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.fp8 import fp8_of
from haversack_server.memory.loss import CHUNKS

BALANCED = 1000  # rows on an expert rank per 1,000 of the average
_CHUNKED = (Loss.CHUNKED, Loss.FUSED_LINEAR)


def with_own_length(run: TrainingRun, model: Architecture) -> TrainingRun:
    """Give a run the length of its sequences where the model fixes it: patches of an image."""
    fixed = model.fixed_seq
    if not fixed or run.training.seq == fixed:
        return run
    if run.training.seq is not None:
        raise InvalidRequestError(
            f"seq={run.training.seq} is not the {fixed} positions of {model.image_size} x "
            f"{model.image_size} images in patches of {model.patch_size}; leave seq out",
            field="training.seq",
        )
    return replace(run, training=replace(run.training, seq=fixed))


def shape_of(
    run: TrainingRun, degrees: Degrees, compute_bytes: int, product_bytes: int = 0
) -> tuple[Shape, tuple[str, ...]]:
    """Fill in the shape of a run. An attention that is not known is taken to be a flash kernel."""
    training, parallelism = run.training, run.parallelism
    if training.seq is None:
        raise InvalidRequestError(
            "activations depend on the tokens of a sequence; give seq, such as 4096",
            field="training.seq",
        )
    shape = Shape(
        microbatch=training.microbatch or 1,
        seq=divided(training.seq, degrees.cp),
        target_seq=divided(training.target_seq, degrees.cp) if training.target_seq else 0,
        compute_bytes=compute_bytes,
        product_bytes=product_bytes,
        attention=_attention(training, degrees),
        tp=degrees.tp,
        sequence_parallel=degrees.sequence_parallel,
        loss=training.loss,
        loss_chunks=training.loss_chunks or CHUNKS,
        loss_parallel=training.loss_parallel,
        cp=degrees.cp,
        context_parallel=parallelism.context_parallel or ContextParallel.RING,
        ep=degrees.ep,
        expert_tp=degrees.expert_tp,
        expert_load_permille=parallelism.expert_load_permille or BALANCED,
        expert_capacity_permille=parallelism.expert_capacity_permille or 0,
        recompute_modules=tuple(sorted(set(training.recompute_modules))),
        fp8=fp8_of(training),
        offload_modules=tuple(sorted(set(training.offload_modules))),
    )
    return shape, (*_assumptions(training, degrees), *_divisions(parallelism, degrees))


def _attention(training: Training, degrees: Degrees) -> AttentionKind:
    if training.attention is not Attention.EAGER:
        return AttentionKind.FLASH
    if degrees.cp > 1:
        raise InvalidRequestError(
            f"separate operations of attention do not run under cp={degrees.cp}; use flash",
            field="training.attention",
        )
    return AttentionKind.EAGER


def _divisions(parallelism: Parallelism, degrees: Degrees) -> list[str]:
    """Say what was taken of the ways in which tokens are divided."""
    assumed = []
    if degrees.cp > 1 and not parallelism.context_parallel:
        assumed.append("context parallelism: keys and values go round a ring")
    if degrees.ep > 1 and parallelism.expert_load_permille is None:
        assumed.append(
            "routing: expected figures have equal loads on all expert ranks, high ends have every "
            "row that can on one of them"
        )
    return assumed


def _assumptions(training: Training, degrees: Degrees) -> list[str]:
    assumed = []
    if training.microbatch is None:
        assumed.append("microbatch: 1 sequence")
    if training.attention is Attention.UNSPECIFIED:
        assumed.append("attention: a flash kernel, which keeps no score matrix")
    if training.attention is Attention.UNKNOWN and degrees.cp > 1:
        assumed.append(
            f"attention: not known, so a flash kernel, the only one that runs under cp={degrees.cp}"
        )
    elif training.attention is Attention.UNKNOWN:
        assumed.append(
            "attention: not known; low and expected are those of a flash kernel, high is that of "
            "separate operations, which keep the score matrix"
        )
    if training.recompute is Recompute.UNSPECIFIED and not training.actions:
        assumed.append("recompute: none, every block saves its activations")
    if training.loss in _CHUNKED and training.loss_chunks is None:
        assumed.append(f"loss: {CHUNKS} chunks of tokens")
    return assumed
