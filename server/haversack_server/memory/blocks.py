"""The blocks of a decoder-only model as tapes: the embedding, a layer, the head with its loss.

A tape holds what one rank runs for one microbatch in eager PyTorch: attention, feed-forward and
logits are split over ``tp`` tensor-parallel ranks; norms and the residual stream are whole on each,
or split along the sequence under sequence parallelism. Parameters and their gradients are not here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from haversack.errors import InvalidRequestError
from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import AttentionKind, Heads, attention, needs_mask
from haversack_server.memory.feed_forward import feed_forward
from haversack_server.memory.kernel_profile import EagerMask, KernelProfile
from haversack_server.memory.tape import Tape
from haversack_server.memory.tape_builder import TapeBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one rank runs: ``microbatch`` sequences of ``seq`` tokens, in which dtype and kernels.

    ``compute_bytes`` is the bytes per element in forward and backward: 2 for bf16, 4 for fp32.
    """

    microbatch: int
    seq: int
    compute_bytes: int = 2
    attention: AttentionKind = AttentionKind.FLASH
    tp: int = 1
    sequence_parallel: bool = False

    @property
    def rows(self) -> int:
        """Count the tokens of a microbatch."""
        return self.microbatch * self.seq

    @property
    def stream_rows(self) -> int:
        """Count the tokens whose residual stream this rank holds."""
        return -(-self.rows // self.tp) if self.sequence_parallel else self.rows


def check_shape(model: Architecture, shape: Shape) -> None:
    """Refuse what this model cannot run: a wrong tensor-parallel degree, kernel or length."""
    for count, what in ((model.heads, "attention heads"), (model.kv_heads, "key/value heads")):
        if count % shape.tp:
            raise InvalidRequestError(
                f"tp={shape.tp} does not divide {count} {what};"
                f" use one of {_divisors(model.heads, model.kv_heads)}",
                field="parallelism.tp",
            )
    if model.attention_softcap is not None and shape.attention is AttentionKind.SDPA:
        raise InvalidRequestError(
            f"attention=sdpa has no soft cap of scores, which {model.family} needs;"
            " use flash or eager",
            field="training.attention",
        )
    if model.learned_positions and shape.seq > model.max_positions:
        raise InvalidRequestError(
            f"seq={shape.seq} is longer than the {model.max_positions} learned positions;"
            f" use at most {model.max_positions}",
            field="training.seq",
        )


def _divisors(first: int, second: int) -> str:
    common = [str(n) for n in range(1, second + 1) if first % n == 0 and second % n == 0]
    return ", ".join(common)


def embedding_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Token (and learned position) embeddings; what all layers share is made and kept here."""
    tape = TapeBuilder("embedding", shape.compute_bytes, shape.rows * parts.INDEX_BYTES)
    size = shape.stream_rows * model.hidden * shape.compute_bytes
    tokens = tape.storage("token embedding", size)
    tape.add("token embedding", [], [tokens])
    if model.scaled_embedding:
        tokens = tape.apply("scaled embedding", [tokens], size)
    if model.learned_positions:
        positions = tape.storage("positions", shape.seq * model.hidden * shape.compute_bytes, 0)
        tape.add("positions", [], [positions])
        total = tape.storage("embedding", size)
        # GPT-2's forward keeps both in variables to its end; counted to backward, as masks are.
        held = [tokens, positions]
        tape.add("embedding", held, [total], held, passes_gradient=True)
        tokens = total
    _shared(tape, model, profile, shape)
    return tape.build(parts.dropout(tape, profile, model.embedding_dropout, tokens))


def _shared(tape: TapeBuilder, model: Architecture, profile: KernelProfile, shape: Shape) -> None:
    """What the model's forward makes once for all layers, kept here until the last of them is done.

    Rotary tables are saved by every layer. Masks and positions are dropped after forward; they
    count until the embedding's backward, to be safe.
    """
    sizes = {"position ids": shape.seq * parts.INDEX_BYTES}
    if not model.learned_positions:
        sizes["rotary tables"] = 2 * shape.seq * model.head_dim * shape.compute_bytes
    sizes["masks"] = model.attention_masks * _mask_bytes(model, profile, shape)
    for name, size_bytes in sizes.items():
        if size_bytes:
            made = tape.storage(name, size_bytes, 0)
            tape.add(name, [], [made], [made])


def _mask_bytes(model: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Return the bytes of one mask over all scores of a head: added in eager, bool in SDPA."""
    scores = shape.microbatch * shape.seq * shape.seq
    if shape.attention is AttentionKind.EAGER:
        return scores * shape.compute_bytes if profile.eager_mask is EagerMask.ADDITIVE else 0
    masked = shape.attention is AttentionKind.SDPA and needs_mask(model, shape.seq)
    return scores if masked else 0


def layer_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """One transformer layer: norm, attention, residual; norm, feed-forward, residual."""
    rows = shape.stream_rows
    size = rows * model.hidden * shape.compute_bytes
    tape = TapeBuilder("layer", shape.compute_bytes, size)

    def norm(source: str) -> str:
        return parts.norm(tape, model.norm, profile, source, rows, model.hidden)

    with tape.frame() as frame:
        source, kept = _enter(tape, profile, shape, norm(tape.input))
        result, held = attention(tape, model, profile, _heads(model, shape), source, kept)
        frame += held
        result = _leave(tape, shape, result, size)
        result = parts.dropout(tape, profile, model.residual_dropout, result)
        if model.fused_qkv:
            frame.append(result)  # GPT-2's module has a name of its own for it
        if model.sandwich_norms:
            result = _held_norm(tape, norm, result)
        middle = tape.passing("residual", [tape.input, result], size)
        source, kept = _enter(tape, profile, shape, norm(middle))
        ffn = -(-model.ffn // shape.tp)
        result = feed_forward(tape, model, source, rows=shape.rows, ffn=ffn, kept=kept)
        result = _leave(tape, shape, result, size)
        result = parts.dropout(tape, profile, model.residual_dropout, result)
        if model.sandwich_norms:
            result = _held_norm(tape, norm, result)
        output = tape.passing("output", [middle, result], size)
    return tape.build(output)


def _held_norm(tape: TapeBuilder, norm: Callable[[str], str], source: str) -> str:
    """Normalise what the layer's frame holds until the norm is done."""
    with tape.frame() as frame:
        frame.append(source)
        return norm(source)


def _heads(model: Architecture, shape: Shape) -> Heads:
    return Heads(
        microbatch=shape.microbatch,
        seq=shape.seq,
        heads=model.heads // shape.tp,
        kv_heads=model.kv_heads // shape.tp,
        head_dim=model.head_dim,
        kind=shape.attention,
    )


def _enter(tape: TapeBuilder, profile: KernelProfile, shape: Shape, source: str) -> tuple[str, str]:
    """Hand a normalised input to column-split products; return it, and what they save."""
    if shape.tp == 1:
        return source, ""
    if not shape.sequence_parallel:
        return tape.view("input of all ranks", source, tape.size(source), copies_gradient=True), ""
    whole = tape.apply("gathered input", [source], tape.size(source) * shape.tp)
    return whole, "" if profile.sequence_parallel_keeps_gathered else source


def _leave(tape: TapeBuilder, shape: Shape, partial: str, size_bytes: int) -> str:
    """Sum the partial results of row-split products over the ranks."""
    if shape.tp == 1:
        return partial
    if not shape.sequence_parallel:
        return tape.passing("all-reduce", [partial], size_bytes)
    return tape.apply("reduce-scatter", [partial], size_bytes)


def head_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Final norm, logits and cross-entropy; its output is the loss."""
    stream = shape.stream_rows
    tape = TapeBuilder("head", shape.compute_bytes, stream * model.hidden * shape.compute_bytes)
    with tape.frame() as frame:
        source = parts.norm(tape, model.norm, profile, tape.input, stream, model.hidden)
        source, kept = _enter(tape, profile, shape, source)
        logits = _logits(tape, model, profile, shape, source, kept)
        frame += [source, logits]
        with tape.frame() as inner:
            loss = _cross_entropy(tape, profile, shape, logits, inner)
    return tape.build(loss)


def logits_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """The part of the head that is logits alone: what its input and its norm keep counts 0."""
    tape = TapeBuilder("logits", shape.compute_bytes, 0)
    with tape.frame() as frame:
        logits = _logits(tape, model, profile, shape, tape.input, "")
        frame.append(logits)
        with tape.frame() as inner:
            loss = _cross_entropy(tape, profile, shape, logits, inner)
    return tape.build(loss)


def logit_count(model: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Count the logits on one rank."""
    split = shape.tp if profile.tensor_parallel_splits_logits else 1
    return shape.rows * -(-model.vocab // split)


def _logits(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    shape: Shape,
    source: str,
    kept: str,
) -> str:
    vocab = -(-model.vocab // shape.tp)
    logits = tape.linear("logits", source, shape.rows, model.hidden, vocab, saved=kept)
    size = logit_count(model, profile, shape) * shape.compute_bytes
    if shape.tp > 1 and not profile.tensor_parallel_splits_logits:
        logits = tape.apply("gathered logits", [logits], size)
    if model.final_softcap is None:
        return logits
    logits = tape.apply("logits / cap", [logits], size)
    logits = tape.apply("tanh", [logits], size, saves_result=True)
    return tape.apply("capped logits", [logits], size)


def _cross_entropy(
    tape: TapeBuilder, profile: KernelProfile, shape: Shape, logits: str, frame: list[str]
) -> str:
    """``cross_entropy(logits.float(), targets)``: log-softmax, then the negative log-likelihood."""
    count = tape.size(logits) // shape.compute_bytes
    wide = logits
    if profile.logit_upcast_bytes > shape.compute_bytes:
        wide = tape.apply("logits in fp32", [logits], count * profile.logit_upcast_bytes)
    frame.append(wide)
    targets = _targets(tape, shape, frame)
    saved = tape.storage(
        "log-softmax", count * profile.logit_saved_bytes, count * profile.logit_gradient_bytes
    )
    tape.add("log-softmax", [wide], [saved], [saved])
    loss = tape.storage("loss", parts.FLOAT_BYTES)
    weight = tape.storage("total weight", parts.FLOAT_BYTES, 0)
    tape.add("negative log-likelihood", [saved], [loss, weight], [saved, targets, weight])
    return loss


def _targets(tape: TapeBuilder, shape: Shape, frame: list[str]) -> str:
    """The labels, padded by one and shifted: a view of one sequence, a copy of several."""
    padded = tape.storage(
        "padded labels", shape.microbatch * (shape.seq + 1) * parts.INDEX_BYTES, 0
    )
    tape.add("padded labels", [], [padded])
    frame.append(padded)
    if shape.microbatch == 1:
        return padded
    shifted = tape.storage("shifted labels", shape.rows * parts.INDEX_BYTES, 0)
    tape.add("shifted labels", [], [shifted])
    return shifted
