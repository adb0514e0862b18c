"""Attention as tape operations: eager, PyTorch's SDPA, and flash attention, with grouped heads.

From the normalised input of a layer to the result of the output projection. Sizes are those of one
rank: heads are split by tensor parallelism. Eager and SDPA were measured on the CPU (torch 2.13.0,
transformers 5.24); flash attention on CUDA is taken to keep what its CPU kernel keeps.
"""

from dataclasses import dataclass
from enum import StrEnum

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.kernel_profile import EagerMask, KernelProfile
from haversack_server.memory.tape_builder import TapeBuilder

CORE = "attention core"


class AttentionKind(StrEnum):
    """The attention kernel that really runs."""

    FLASH = "flash"
    EAGER = "eager"
    SDPA = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The attention of one rank: sequences, their length, and this rank's heads."""

    microbatch: int
    seq: int
    heads: int
    kv_heads: int
    head_dim: int
    kind: AttentionKind

    @property
    def scores(self) -> int:
        """Count the attention scores."""
        return self.microbatch * self.heads * self.seq * self.seq

    @property
    def rows(self) -> int:
        """Count the tokens."""
        return self.microbatch * self.seq


@dataclass(frozen=True, slots=True)
class _Projected:
    query: str
    key: str
    value: str


def attention(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    source: str,
    kept: str = "",
) -> tuple[str, tuple[str, ...]]:
    """Append attention with its projections; return its result, and what the layer still holds.

    ``kept`` is what the projections save in place of their input, if that is something else.
    """
    with tape.frame() as frame:
        projected = _project(tape, model, profile, heads, source, kept)
        frame += [source, projected.query, projected.key, projected.value]
        tape.scope = CORE
        if heads.kind is AttentionKind.EAGER:
            result, probabilities = _eager(tape, model, profile, heads, projected)
            held: tuple[str, ...] = (probabilities,)
        else:
            result, held = _fused(tape, model, profile, heads, projected), ()
        tape.scope = ""
        width = heads.heads * heads.head_dim
        result = tape.linear("attention output", result, heads.rows, width, model.hidden)
        return result, held


def _project(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    source: str,
    kept: str,
) -> _Projected:
    queries, keys = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim

    def product(name: str, outputs: int) -> str:
        return tape.linear(name, source, heads.rows, model.hidden, outputs, saved=kept)

    if model.fused_qkv:
        joined = product("query, key, value", 3 * queries)
        # Its parts are views, whose gradients are joined again.
        return _Projected(*tape.split("split", joined, ("query", "key", "value")))
    query = product("query", queries)
    query = _per_head(tape, model, profile, heads, query, heads.heads)
    key = product("key", keys)
    key = _per_head(tape, model, profile, heads, key, heads.kv_heads)
    value = product("value", keys)
    # The fused kernels return the value's gradient in its own layout; eager's is transposed.
    eager = heads.kind is AttentionKind.EAGER
    value = tape.view("value heads", value, tape.size(value), copies_gradient=eager)
    if model.learned_positions:
        return _Projected(query, key, value)
    with tape.frame() as frame:
        frame += [query, key]
        return _Projected(parts.rotary(tape, query), parts.rotary(tape, key), value)


def _per_head(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    source: str,
    count: int,
) -> str:
    """View a projection per head, normalised per head where the family does so."""
    if model.qk_norm:
        rows = heads.rows * count
        source = parts.norm(tape, model.norm, profile, source, rows, heads.head_dim)
    return tape.view("heads", source, tape.size(source), copies_gradient=True)


def _fused(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    projected: _Projected,
) -> str:
    """Flash attention and SDPA: query, key, value, result and logsumexp are kept."""
    key, value = projected.key, projected.value
    if _repeats(model, profile, heads) and heads.heads > heads.kv_heads:
        key, value = (_repeat(tape, name, heads) for name in (key, value))
    result = tape.storage("attention", tape.size(projected.query))
    logsumexp = heads.rows * heads.heads * profile.flash_logsumexp_bytes
    statistics = tape.storage("logsumexp", logsumexp, 0)
    reads = [projected.query, key, value]
    mask = _float_mask(tape, model, heads)
    tape.add(
        "attention",
        [*reads, *mask],
        [result, statistics],
        [*reads, *mask, result, statistics],
        flops=2 * heads.scores * heads.head_dim,  # two products, of which the mask spares half
    )
    return result


def _repeats(model: Architecture, profile: KernelProfile, heads: Heads) -> bool:
    if heads.kind is AttentionKind.FLASH:
        return profile.flash_repeats_kv
    if needs_mask(model, heads.seq):
        return profile.sdpa_repeats_kv_under_mask
    return profile.sdpa_repeats_kv


def _float_mask(tape: TapeBuilder, model: Architecture, heads: Heads) -> list[str]:
    """SDPA turns a bool mask into one that is added, in every layer anew, and keeps it."""
    if heads.kind is not AttentionKind.SDPA or not needs_mask(model, heads.seq):
        return []
    scores = heads.microbatch * heads.seq * heads.seq
    mask = tape.storage("mask to add", scores * tape.itemsize, 0)
    tape.add("mask to add", [], [mask])
    return [mask]


def needs_mask(model: Architecture, seq: int) -> bool:
    """Tell whether SDPA is handed a mask: where a window is no longer than the sequence.

    Padding would need one too; sequences are taken to be of equal length.
    """
    return model.sliding_window is not None and seq >= model.sliding_window


def _repeat(tape: TapeBuilder, source: str, heads: Heads) -> str:
    """Copy every key or value head to its group of query heads."""
    size = tape.size(source) * heads.heads // heads.kv_heads
    return tape.apply("repeated heads", [source], size)


def _eager(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    projected: _Projected,
) -> tuple[str, str]:
    """Scores, mask, softmax, dropout and their product with the values, each a kernel."""
    key, value = projected.key, projected.value
    if heads.heads > heads.kv_heads:
        key, value = (_repeat(tape, name, heads) for name in (key, value))
    with tape.frame() as frame:
        frame += [key, value]
        flops = 2 * heads.scores * heads.head_dim
        size = heads.scores * tape.itemsize
        scores = tape.storage("scores", size)
        tape.add("scores", [projected.query, key], [scores], [projected.query, key], flops=flops)
        scores = _masked(tape, model, profile, heads, scores)
        probabilities = _softmax(tape, model, profile, heads, scores)
        probabilities = parts.dropout(tape, profile, model.attention_dropout, probabilities)
        result = tape.storage("attention", tape.size(projected.query))
        tape.add("attention", [probabilities, value], [result], [probabilities, value], flops=flops)
        # The heads are put side by side again, in a copy.
        return tape.passing("heads joined", [result], tape.size(result)), probabilities


def _masked(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, scores: str
) -> str:
    size = tape.size(scores)
    if profile.eager_scales_scores:
        scores = tape.apply("scaled scores", [scores], size)
    if model.attention_softcap is not None:
        scores = tape.apply("scores / cap", [scores], size)
        scores = tape.apply("tanh", [scores], size, saves_result=True)
        scores = tape.apply("capped scores", [scores], size)
    if profile.eager_mask is EagerMask.ADDITIVE:
        return tape.passing("masked scores", [scores], size)
    mask = tape.storage("causal mask", heads.seq * heads.seq * profile.eager_mask_bytes, 0)
    masked = tape.storage("masked scores", size)
    tape.add("masked scores", [scores], [masked, mask], [mask])
    return masked


def _softmax(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, scores: str
) -> str:
    """Softmax in fp32 with a copy in the compute dtype, or in the compute dtype at once."""
    upcast = model.softmax_in_float and profile.eager_softmax_upcast
    width = parts.FLOAT_BYTES if upcast else tape.itemsize
    with tape.frame() as frame:
        frame.append(scores)
        wide = parts.cast(tape, scores, heads.scores * width)
        wide = tape.apply("softmax", [wide], tape.size(wide), saves_result=True)
        return parts.cast(tape, wide, heads.scores * tape.itemsize)
