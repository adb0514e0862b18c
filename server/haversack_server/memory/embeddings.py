"""What stands before the layers, as tapes: embeddings, and what a model makes once for all layers.

Between an encoder and its decoder stands a bridge: the encoder's last norm, whose output every
layer
of the decoder attends to, and the decoder's embedding. Parameters and their gradients are not here.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import AttentionKind, needs_mask
from haversack_server.memory.blocks import Shape
from haversack_server.memory.kernel_profile import EagerMask, KernelProfile
from haversack_server.memory.norms import norm
from haversack_server.memory.tape import Tape
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Rotary, Stack


def embedding_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Embeddings of tokens or patches; what all layers share is made and kept here."""
    tape = TapeBuilder("embedding", shape.compute_bytes, shape.rows * parts.INDEX_BYTES)
    size = shape.stream_rows * model.hidden * shape.compute_bytes
    if model.patch_size:
        total = _patches(tape, model, shape, size)
    else:
        total = _tokens(tape, model, profile, shape, size)
    _shared(tape, model, profile, shape)
    return tape.build(_finished(tape, model, profile, total, shape.stream_rows))


def bridge_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """The encoder's last norm, which is kept for the decoder's layers, and the decoder's
    embedding."""
    encoded = shape.stream_rows * model.hidden * shape.compute_bytes
    shape = shape.of(Stack.CROSS)
    tape = TapeBuilder("bridge", shape.compute_bytes, encoded, model.tuning)
    rows = encoded // model.hidden // shape.compute_bytes
    output = norm(tape, model.norm, profile, tape.input, rows, model.hidden)
    output = parts.dropout(tape, profile, model.residual_dropout, output)
    # The layers of the decoder keep it, and add up its gradient until they are done.
    handed = tape.outer("encoder output", encoded)
    tape.add("kept for the decoder", [output], [handed], [output], passes_gradient=True)
    size = shape.stream_rows * model.hidden * shape.compute_bytes
    tokens = tape.storage("token embedding", size)
    tape.add("token embedding", [], [tokens])
    _shared(tape, model, profile, shape)
    return tape.build(parts.dropout(tape, profile, model.embedding_dropout, tokens))


def _tokens(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, shape: Shape, size: int
) -> str:
    tokens = tape.storage("token embedding", size)
    tape.add("token embedding", [], [tokens])
    if model.scaled_embedding:
        tokens = tape.apply("scaled embedding", [tokens], size)
    if model.segments:
        segments = tape.storage("segments", size)
        tape.add("segments", [], [segments])
        tokens = tape.passing("tokens and segments", [tokens, segments], size)
    if not model.learned_positions:
        return tokens
    positions = tape.storage("positions", shape.seq * model.hidden * shape.compute_bytes, 0)
    tape.add("positions", [], [positions])
    total = tape.storage("embedding", size)
    # GPT-2's forward keeps both in variables to its end; counted to backward, as masks are.
    held = [tokens, positions] if profile.embedding_parts_held else []
    tape.add("embedding", held, [total], held, passes_gradient=True)
    return total


def _patches(tape: TapeBuilder, model: Architecture, shape: Shape, size: int) -> str:
    """A convolution that keeps the images, a token in front, and positions."""
    pixels = model.channels * model.image_size**2 * shape.microbatch * shape.compute_bytes
    images = tape.storage("images", pixels, 0)
    tape.add("images", [], [images], [images])
    patches = tape.storage("patches", size - size // model.fixed_seq)
    tape.add("patches", [images], [patches])
    joined = tape.apply("token in front", [patches], size)
    return tape.passing("positions", [joined], size)


def _finished(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, total: str, rows: int
) -> str:
    """Norm and dropout, where the family has them on its embeddings."""
    if model.embedding_norm:
        total = norm(tape, model.norm, profile, total, rows, model.hidden)
    rate = model.embedding_dropout
    return parts.dropout(tape, profile, rate, total)


def shared_bytes(model: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Bytes of what all layers share, which a stage without the embedding makes for itself."""
    tape = TapeBuilder("shared", shape.compute_bytes, 0)
    _shared(tape, model, profile, shape)
    made = tape.build(tape.input)
    return made.size_of(name for operation in made.operations for name in operation.saves)


def _shared(tape: TapeBuilder, model: Architecture, profile: KernelProfile, shape: Shape) -> None:
    """What the model's forward makes once for all layers, kept here until the last of them is done.

    Rotary tables are saved by every layer. Masks and positions are dropped after forward; they
    count until the embedding's backward, to be safe.
    """
    sizes = {"position ids": shape.seq * parts.INDEX_BYTES}
    sizes["rotary tables"] = _table_bytes(model, shape)
    if model.alibi:
        sizes["slopes"] = model.heads * shape.rows * shape.compute_bytes
    if model.position_bias:
        sizes["bias of positions"] = model.heads * shape.seq * shape.seq * shape.compute_bytes
    sizes["masks"] = model.attention_masks * _mask_bytes(model, profile, shape)
    for name, size_bytes in sizes.items():
        if size_bytes:
            made = tape.storage(name, size_bytes, 0)
            tape.add(name, [], [made], [made])


def _table_bytes(model: Architecture, shape: Shape) -> int:
    """Sine and cosine, or complex numbers in fp32; two sets where windows have one of their own."""
    if model.rotary is Rotary.NONE:
        return 0
    width = shape.compute_bytes
    if model.rotary in (Rotary.COMPLEX, Rotary.PAIRS_FLOAT):
        width = parts.FLOAT_BYTES
    halved = model.rotary in (Rotary.COMPLEX, Rotary.PAIRS)  # each number stands for a pair
    elements = shape.seq * (model.rotary_size or model.head_dim) // (2 if halved else 1)
    sets = model.attention_masks if model.sandwich_norms else 1
    return sets * 2 * elements * width


def _mask_bytes(model: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Return the bytes of one mask over all scores of a head: added in eager, bool in SDPA."""
    if not model.causal:
        return 0  # sequences are taken to be of equal length
    if profile.loader_mask_bytes:
        return 0  # it comes with the microbatch, on every stage of a pipeline
    scores = shape.microbatch * shape.seq * shape.seq
    if shape.attention is AttentionKind.EAGER:
        return scores * shape.compute_bytes if profile.eager_mask is EagerMask.ADDITIVE else 0
    masked = shape.attention is AttentionKind.SDPA and needs_mask(model, shape.seq)
    return scores if masked else 0
