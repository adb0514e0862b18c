"""Attention run as separate kernels: eager attention, and SDPA where no fused kernel takes it.

Scores, mask, softmax, dropout and their product with the values are each a kernel of its own, so
the scores are kept. Measured (torch 2.13.0 CPU, transformers 5.24).
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.kernel_profile import EagerMask, KernelProfile
from haversack_server.memory.projections import Heads, Projected
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Projection


def repeated(tape: TapeBuilder, source: str, heads: Heads) -> str:
    """Copy every key or value head to its group of query heads."""
    size = tape.size(source) * heads.heads // heads.kv_heads
    return tape.apply("repeated heads", [source], size)


def eager(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    projected: Projected,
) -> tuple[str, str]:
    """Scores, mask, softmax, dropout and their product with the values, each a kernel."""
    key, value, repeats = projected.key, projected.value, _repeats(model, heads)
    if repeats:
        key, value = (repeated(tape, name, heads) for name in (key, value))
    # Products over several sequences take copies of what is strided over two axes.
    copies = profile.eager_copies_operands and heads.microbatch > 1 and not model.alibi
    with tape.frame() as frame:
        frame += [key, value]
        query, key = tape.operand(projected.query), tape.operand(key)
        query = _copy(tape, query) if copies else query
        key = _copy(tape, key) if copies and not repeats else key
        scores = _scores(tape, model, heads, query, key)
        frame += [scores] if model.alibi or model.always_masked else []
        scores = _masked(tape, model, profile, heads, scores)
        if model.attention_sinks:
            probabilities = _softmax_with_sinks(tape, heads, scores)
        else:
            low = tape.width(projected.query)
            probabilities = _softmax(tape, model, profile, heads, scores, low)
        probabilities = parts.dropout(tape, profile, model.attention_dropout, probabilities)
        value = _copy(tape, value) if copies and not repeats else value
        width = tape.product_bytes
        result = tape.storage("attention", heads.rows * heads.width * width, width=width)
        both, flops = [tape.operand(probabilities), value], 2 * heads.scores * heads.head_dim
        tape.add("attention", both, [result], both, flops=flops)
        # The heads are put side by side again, in a copy.
        return tape.passing("heads joined", [result], tape.size(result)), probabilities


def _copy(tape: TapeBuilder, source: str) -> str:
    return tape.passing("copy", [source], tape.size(source))


def _repeats(model: Architecture, heads: Heads) -> bool:
    """Whether keys and values are copied to every query head; one sequence is broadcast instead."""
    if heads.heads == heads.kv_heads or model.projection is Projection.GROUPS:
        return False
    return model.projection is not Projection.INDEXED or heads.microbatch > 1


def _scores(tape: TapeBuilder, model: Architecture, heads: Heads, query: str, key: str) -> str:
    """The product of queries and keys, of copies in fp32 where the family makes them."""
    itemsize = tape.product_bytes
    if model.scores_in_float and itemsize < parts.FLOAT_BYTES:
        query, key = (
            parts.cast(tape, name, tape.size(name) // itemsize * parts.FLOAT_BYTES)
            for name in (query, key)
        )
        itemsize = parts.FLOAT_BYTES
    scores = tape.storage("scores", heads.scores * itemsize, width=itemsize)
    flops = 2 * heads.scores * heads.head_dim
    tape.add("scores", [query, key], [scores], [query, key], flops=flops)
    return scores


def _masked(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, scores: str
) -> str:
    size = tape.size(scores)
    if profile.eager_scales_scores and not model.alibi:
        scores = tape.apply("scaled scores", [scores], size)
    if model.attention_softcap is not None:
        scores = tape.apply("scores / cap", [scores], size)
        scores = tape.apply("tanh", [scores], size, saves_result=True)
        scores = tape.apply("capped scores", [scores], size)
    if model.position_bias and not heads.key_seq:
        bias = tape.outer("bias of positions", size // heads.microbatch)
        scores = tape.apply("biased scores", [scores, bias], size)
    if profile.eager_mask is EagerMask.ADDITIVE:
        if not model.causal:
            return scores
        # The mask has the stream's type.
        return tape.passing("masked scores", [tape.widened(scores)], tape.wide_size(scores))
    mask = tape.storage("causal mask", heads.seq * heads.seq * profile.eager_mask_bytes, 0)
    masked = tape.storage("masked scores", size)
    tape.add("masked scores", [scores], [masked, mask], [mask])
    return masked


def _softmax(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    scores: str,
    low: int,
) -> str:
    """Softmax in fp32 with a copy in numbers of ``low`` bytes, or in those of the scores."""
    upcast = model.softmax_in_float and profile.eager_softmax_upcast
    widens = tape.autocast is not None and tape.autocast.widens
    in_float = upcast or widens or model.scores_in_float
    width = parts.FLOAT_BYTES if in_float else tape.width(scores)
    with tape.frame() as frame:
        frame.append(scores)
        wide = parts.cast(tape, scores, heads.scores * width)
        size = tape.size(wide)
        scratch = size if profile.softmax_multiplies_first else 0
        wide = tape.apply(
            "softmax", [wide], size, saves_result=True, backward_scratch_bytes=scratch
        )
        if tape.autocast and not (model.softmax_in_float or model.causal):
            return wide  # encoders leave it to the product to convert
        return parts.cast(tape, wide, heads.scores * low)


def _softmax_with_sinks(tape: TapeBuilder, heads: Heads, scores: str) -> str:
    """A column more for each head's sink; the result is a view, which keeps that column."""
    rows = heads.rows * heads.heads
    size = (heads.scores + rows) * tape.itemsize
    with tape.frame() as frame:
        joined = tape.apply("scores and sinks", [scores], size)
        largest = tape.storage("largest", rows * tape.itemsize)
        places = tape.storage("places of the largest", rows * parts.INDEX_BYTES, 0)
        tape.add("largest", [joined], [largest, places], [places], backward_scratch_bytes=size)
        below = tape.apply("less the largest", [joined, largest], size)
        frame += [scores, below]
        wide = tape.apply("softmax", [below], size, saves_result=True)
        return tape.view("probabilities", wide, heads.scores * tape.itemsize, copies_gradient=True)


def in_parts(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    projected: Projected,
) -> str:
    """SDPA as a chain of kernels, all in fp32: scaled queries and keys, scores and values are kept.

    PyTorch's math path, taken on the CPU where a mask needs a gradient or heads are broadcast.
    """
    key, value = projected.key, projected.value
    if heads.heads > heads.kv_heads and heads.microbatch > 1:
        key, value = (repeated(tape, name, heads) for name in (key, value))
    size, flops = heads.scores * parts.FLOAT_BYTES, 2 * heads.scores * heads.head_dim
    with tape.frame() as frame:
        given = (projected.query, key, value)
        query, key, value = (
            parts.cast(tape, name, tape.size(name) // tape.itemsize * parts.FLOAT_BYTES)
            for name in given
        )
        frame += [*given, query, key, value]
        query, key = (tape.apply("scaled", [name], tape.size(name)) for name in (query, key))
        if heads.microbatch > 1:
            frame += [query, key]
            query, key, value = (_copy(tape, name) for name in (query, key, value))
        scores = tape.storage("scores", size)
        tape.add("scores", [query, key], [scores], [query, key], flops=flops)
        mask = [_where_seen(tape, model, heads)] if model.position_bias else []
        mask += [_given_mask(tape, heads)] if model.always_masked else []
        masked = tape.apply("masked scores", [scores, *mask], size)
        frame += [query, *mask]
        scratch = size if profile.softmax_multiplies_first else 0
        chances = tape.apply(
            "softmax", [masked], size, saves_result=True, backward_scratch_bytes=scratch
        )
        if model.attention_dropout:
            chances = _dropped(tape, profile, heads, chances)
        wide = tape.storage("attention", heads.rows * heads.width * parts.FLOAT_BYTES)
        tape.add("attention", [chances, value], [wide], [chances, value], flops=flops)
        frame += [chances, wide]
        joined = tape.storage("heads joined", heads.rows * heads.width * tape.itemsize)
        # The weights are returned in the compute dtype as well, and dropped.
        weights = heads.scores * tape.itemsize
        tape.add("heads joined", [wide], [joined], forward_scratch_bytes=weights)
        return joined


def _dropped(tape: TapeBuilder, profile: KernelProfile, heads: Heads, chances: str) -> str:
    """Multiply by noise, which is kept; the result is as large as what it is given."""
    each = profile.dropout_mask_bytes or parts.FLOAT_BYTES
    noise = tape.storage("dropout mask", heads.scores * each, 0)
    dropped = tape.storage("dropped", tape.size(chances))
    tape.add("dropout", [chances], [dropped, noise], [noise])
    return dropped


def _given_mask(tape: TapeBuilder, heads: Heads) -> str:
    """A mask to add, made of the model's bool mask and dropped again."""
    size = heads.microbatch * heads.seq * heads.seq * tape.itemsize
    mask = tape.storage("mask to add", size, 0)
    tape.add("mask to add", [], [mask])
    return mask


def _where_seen(tape: TapeBuilder, model: Architecture, heads: Heads) -> str:
    """T5's bias as a mask: its gradient is summed over layers; a causal one keeps what is seen."""
    columns = heads.key_seq or heads.seq
    size = heads.heads * heads.seq * columns * tape.itemsize
    bias = tape.outer("bias of positions", size)
    if not model.causal:
        return tape.apply("bias as a mask", [bias], size)
    seen = tape.storage("what is seen", heads.seq * columns, 0)
    tape.add("what is seen", [], [seen])
    return tape.apply("bias as a mask", [bias], size, [seen])
