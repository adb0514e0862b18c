"""Attention as tape operations: the kernels of FlashAttention and PyTorch's SDPA; eager has a file.

From the normalised input of a layer to the result of the output projection. Sizes are those of one
rank: heads are split by tensor parallelism. Eager and SDPA were measured on the CPU (torch 2.13.0,
transformers 5.24); flash attention on CUDA is taken to keep what its CPU kernel keeps.
"""

from haversack_server.memory.architecture import Architecture
from haversack_server.memory.context_parallel import exchange
from haversack_server.memory.eager_attention import eager, in_parts, repeated
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.latent import latent_projections
from haversack_server.memory.latent_shards import latent_on_shards
from haversack_server.memory.parts import FLOAT_BYTES, INDEX_BYTES
from haversack_server.memory.projections import (
    AttentionKind,
    Heads,
    Inputs,
    Projected,
    project,
)
from haversack_server.memory.regions import CORE
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Projection

# Integers of every score alive together at the height of T5's bucket arithmetic (measured).
_BUCKET_STEPS = 6

__all__ = ["CORE", "AttentionKind", "Heads", "Inputs", "attention", "needs_mask"]


def attention(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Inputs
) -> tuple[str, tuple[str, ...]]:
    """Append attention with its projections; return its result, and what the layer still holds."""
    with tape.frame() as frame:
        if model.latent is None:
            projected = project(tape, model, profile, heads, given)
        else:
            on_shards = profile.latent_on_shards
            expanded = latent_on_shards if on_shards else latent_projections
            projected = expanded(tape, model, profile, heads, given)
        frame += [given.source, projected.query, projected.key, projected.value]
        frame += projected.held
        with tape.scoped(CORE):
            result, held = _core(tape, model, profile, heads, projected)
        result = tape.linear("attention output", result, heads.rows, heads.width, model.hidden)
        return result, held


def _core(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Projected
) -> tuple[str, tuple[str, ...]]:
    """Run the kernel that takes this attention; BLOOM has eager attention alone."""
    bias = _bias(tape, model, heads)
    result, held = _kernel(tape, model, profile, heads, given)
    return result, (*held, *bias)


def _kernel(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Projected
) -> tuple[str, tuple[str, ...]]:
    if heads.kind is AttentionKind.EAGER or model.alibi:
        result, probabilities = eager(tape, model, profile, heads, given)
        return result, (probabilities,)
    if _falls_back(tape, model, profile, heads):
        return in_parts(tape, model, profile, heads, given), ()
    return _fused(tape, model, profile, heads, given), ()


def _falls_back(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads
) -> bool:
    """Whether SDPA runs in parts: a bias that is trained, or one key head for many query heads.

    Nor is there a flash kernel for a bias; on CUDA, none for groups of heads in 32-bit numbers.
    """
    grouped = heads.heads > heads.kv_heads
    trained = model.position_bias and not heads.key_seq
    wide = profile.wide_groups_in_parts and grouped and tape.product_bytes == FLOAT_BYTES
    if heads.kind is AttentionKind.FLASH:
        return trained or wide
    return trained or wide or (model.projection is Projection.INDEXED and grouped)


def _fused(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    projected: Projected,
) -> str:
    """Flash attention and SDPA: query, key, value, result and logsumexp are kept."""
    key, value = projected.key, projected.value
    if _repeats(model, profile, heads) and heads.heads > heads.kv_heads:
        key, value = (repeated(tape, name, heads) for name in (key, value))
    query, key, value = (tape.operand(name) for name in (projected.query, key, value))
    width = tape.product_bytes
    result = tape.storage("attention", heads.rows * heads.width * width, width=width)
    logsumexp = heads.rows * heads.heads * profile.flash_logsumexp_bytes
    statistics = tape.storage("logsumexp", logsumexp, 0)
    reads = [query, key, value]
    mask = [*_float_mask(tape, model, heads), *_bias_mask(tape, model, heads)]
    buffers = exchange(
        heads.context_parallel,
        heads.cp,
        tape.size(query),
        tape.size(key) + tape.size(value),
    )
    tape.add(
        "attention",
        [*reads, *mask],
        [result, statistics],
        [*reads, *mask, result, statistics],
        # Two products, of which the mask spares half.
        flops=2 * heads.scores * heads.cp * heads.head_dim,
        forward_scratch_bytes=buffers.forward_bytes,
        backward_scratch_bytes=buffers.backward_bytes,
    )
    # SDPA lays its result out as the query is; one sequence is laid out the same either way.
    by_heads = heads.kind is AttentionKind.SDPA and projected.by_heads
    if by_heads or (profile.flash_transposes_result and heads.microbatch > 1):
        return tape.passing("heads joined", [result], tape.size(result))
    return result


def _repeats(model: Architecture, profile: KernelProfile, heads: Heads) -> bool:
    if model.projection is Projection.GROUPS:
        return False  # they were copied already
    if heads.kind is AttentionKind.FLASH:
        return profile.flash_repeats_kv
    if needs_mask(model, heads.seq):
        return profile.sdpa_repeats_kv_under_mask
    return profile.sdpa_repeats_kv


def _float_mask(tape: TapeBuilder, model: Architecture, heads: Heads) -> list[str]:
    """SDPA turns a bool mask into one that is added, in every layer anew, and keeps it."""
    if heads.kind is not AttentionKind.SDPA or not needs_mask(model, heads.seq):
        return []
    # A window's mask is one for each sequence, Falcon's is one for all.
    copies = heads.microbatch
    scores = copies * heads.seq * heads.seq
    mask = tape.storage("mask to add", scores * tape.product_bytes, 0)
    tape.add("mask to add", [], [mask])
    return [mask]


def _bias(tape: TapeBuilder, model: Architecture, heads: Heads) -> list[str]:
    """The first layer of a stack looks up its bias of positions, by an index that is kept."""
    if not model.relative_buckets:
        return []
    if heads.key_seq:
        return _no_bias(tape, heads)
    scores = heads.seq * heads.seq
    index = tape.storage("buckets", scores * INDEX_BYTES, 0)
    bias = tape.storage("bias of positions", heads.heads * scores * tape.itemsize, 0)
    # Distances are turned into buckets in several steps, each a tensor of integers.
    scratch = _BUCKET_STEPS * scores * INDEX_BYTES
    tape.add("bias of positions", [], [index, bias], [index], forward_scratch_bytes=scratch)
    return [bias]


def _no_bias(tape: TapeBuilder, heads: Heads) -> list[str]:
    """Zeros for what crosses to an encoder; a fused kernel keeps them as its mask."""
    if heads.kind is not AttentionKind.EAGER:
        return []
    zeros = tape.storage("no bias", heads.heads * heads.seq * heads.key_seq * tape.itemsize, 0)
    tape.add("no bias", [], [zeros])
    return [zeros]


def _bias_mask(tape: TapeBuilder, model: Architecture, heads: Heads) -> list[str]:
    """T5's bias of positions, made contiguous for the kernel in every layer, and kept.

    What crosses to the encoder has zeros in its place, made in the first layer for all.
    """
    if not model.position_bias or (heads.key_seq and not model.relative_buckets):
        return []
    size = heads.heads * heads.seq * (heads.key_seq or heads.seq) * tape.itemsize
    mask = tape.storage("bias as a mask", size, 0)
    tape.add("bias as a mask", [], [mask])
    return [mask]


def needs_mask(model: Architecture, seq: int) -> bool:
    """Tell whether SDPA is handed a mask: where a window is no longer than the sequence.

    Padding would need one too; sequences are taken to be of equal length.
    """
    windowed = model.sliding_window is not None and seq >= model.sliding_window
    return windowed or model.always_masked
