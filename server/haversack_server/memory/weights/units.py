"""From an architecture to its units: embedding, layers, head; an encoder's before a decoder's."""

from dataclasses import replace

from haversack_server.memory.architecture import Architecture, Parameter, Unit, UnitKind
from haversack_server.memory.traits import Head, QueryKeyNorm, Residual, Rotary, Stack
from haversack_server.memory.weights.modules import (
    Parameters,
    attention,
    feed_forward,
    linear,
    norm,
)
from haversack_server.memory.weights.names import Names, names_of


def with_units(model: Architecture) -> Architecture:
    """Return the architecture with its units, in execution order."""
    names = names_of(model.family)
    if model.encoder_layers:
        return replace(model, units=_encoder_decoder(model, names))
    embedding = Unit("embedding", UnitKind.EMBEDDING, _embedding(model, names))
    variants = [_variant(model, index) for index in range(model.layers)]
    layers = _layers(model, names, names.layers, variants)
    return replace(model, units=(embedding, *layers, _head(model, names)))


def _variant(model: Architecture, index: int) -> Architecture:
    """Return the model as this layer has it."""
    made = model
    if index in model.dense_layers:
        made = replace(made, experts=0, ffn=model.dense_ffn, units=())
    if index in model.plain_layers:
        normed = model.query_key_norm
        kept = QueryKeyNorm.NONE if normed is QueryKeyNorm.PLAIN else normed
        made = replace(made, rotary=Rotary.NONE, query_key_norm=kept, units=())
    return made


def _layers(
    model: Architecture, names: Names, prefix: str, variants: list[Architecture]
) -> tuple[Unit, ...]:
    """Make a unit of every layer; equal layers share one tuple of parameters."""
    known: dict[Architecture, Parameters] = {}
    made = []
    for index, layer in enumerate(variants):
        parameters = known.get(layer)
        if parameters is None:
            parameters = known.setdefault(layer, _layer(layer, names))
        variant = None if layer == model else layer
        made.append(Unit(f"{prefix}.{index}", UnitKind.LAYER, parameters, variant=variant))
    return tuple(made)


def _layer(model: Architecture, names: Names) -> Parameters:
    if model.stack is not Stack.DECODER:
        return _stacked_layer(model, names)
    first, *others = (norm(model, name, model.hidden) for name in _norms(model, names))
    return (
        *first,
        *attention(model, names),
        *(parameter for made in others for parameter in made),
        *feed_forward(model, names),
    )


def _norms(model: Architecture, names: Names) -> tuple[str, ...]:
    after = (names.after_attention_norm, names.after_feed_forward_norm)
    if model.sandwich_norms:
        return (names.input_norm, names.feed_forward_norm, *after)
    if model.residual in (Residual.AFTER, Residual.OUTPUT):
        return after
    if model.residual is Residual.PARALLEL:
        return (names.input_norm,)
    if model.residual is Residual.PARALLEL_NORMS and names.side_norms:
        return names.side_norms
    return (names.input_norm, names.feed_forward_norm)


def _stacked_layer(model: Architecture, names: Names) -> Parameters:
    """A layer of T5: its parts are numbered, and a decoder has one more between the two."""
    crossing = model.stack is Stack.CROSS
    last = 2 if crossing else 1
    dense = f"layer.{last}.DenseReluDense"
    up = f"{dense}.wi_1" if model.gated else f"{dense}.wi"
    own = replace(names, gate=f"{dense}.wi_0", up=up, down=f"{dense}.wo")
    parts = {
        name: f"layer.1.EncDecAttention.{name[0]}" for name in ("query", "key", "value", "output")
    }
    cross = attention(model, replace(names, **parts)) if crossing else ()  # type: ignore[arg-type]
    shape = (model.relative_buckets, model.heads)
    bias = Parameter("layer.0.SelfAttention.relative_attention_bias.weight", shape, 1)
    return (
        *attention(model, names),
        *((bias,) if model.relative_buckets else ()),
        *cross,
        *feed_forward(model, own),
        *(
            Parameter(f"layer.{index}.layer_norm.weight", (model.hidden,))
            for index in range(last + 1)
        ),
    )


def _embedding(model: Architecture, names: Names) -> Parameters:
    if model.patch_size:
        return _patches(model, names)
    tokens = Parameter(f"{names.embedding}.weight", (model.vocab, model.hidden), 0)
    made = [tokens]
    if model.learned_positions:
        positions = model.max_positions + model.position_offset
        made.append(Parameter(f"{names.positions}.weight", (positions, model.hidden)))
    if model.segments:
        made.append(Parameter(f"{names.segments}.weight", (model.segments, model.hidden)))
    normed = norm(model, names.embedding_norm, model.hidden) if model.embedding_norm else ()
    return (*made, *normed)


def _patches(model: Architecture, names: Names) -> Parameters:
    """One product for each patch of an image, a token for the class, and learned positions."""
    hidden, patch = model.hidden, model.patch_size
    projection = f"{names.embedding}.patch_embeddings.projection"
    return (
        Parameter(f"{names.embedding}.cls_token", (1, 1, hidden)),
        Parameter(f"{names.embedding}.position_embeddings", (1, model.fixed_seq, hidden)),
        Parameter(f"{projection}.weight", (hidden, model.channels, patch, patch)),
        Parameter(f"{projection}.bias", (hidden,)),
    )


def _head(model: Architecture, names: Names) -> Unit:
    if model.head is Head.MASKED:
        dense = linear(names.head_dense, model.hidden, model.hidden, bias=True)
        before = (
            *(Parameter(row.name, row.shape) for row in dense),
            *norm(model, names.head_norm, model.hidden),
        )
    else:
        before = norm(model, names.final_norm, model.hidden) if model.final_norm else ()
    rows = model.labels if model.head is Head.CLASSIFIER else model.vocab
    bias = (Parameter(names.head_bias, (rows,), 0),) if model.head_bias else ()
    if model.tied:
        tied_to = f"{names.embedding}.weight"
        return Unit("head", UnitKind.HEAD, (*before, *bias), tied_to=tied_to)
    weight = Parameter(f"{names.head}.weight", (rows, model.hidden), 0)
    if model.head is Head.MASKED:  # untied, the product has a bias of its own beside the module's
        bias = (*bias, Parameter(f"{names.head}.bias", (rows,), 0))
    return Unit("head", UnitKind.HEAD, (*before, weight, *bias))


def _encoder_decoder(model: Architecture, names: Names) -> tuple[Unit, ...]:
    """T5: the encoder, a bridge of its last norm and the decoder's embedding, the decoder, the
    head.

    The bridge's output and the encoder's output are both handed on; see ``bridge_tape``.
    """
    encoder = replace(model, stack=Stack.ENCODER, causal=False, units=())
    decoder = replace(model, stack=Stack.CROSS, encoder_layers=0, units=())
    bridge = Unit(
        "decoder.embedding",
        UnitKind.EMBEDDING,
        (Parameter("encoder.final_layer_norm.weight", (model.hidden,)),),
        tied_to=f"{names.embedding}.weight",
        variant=decoder,
    )
    return (
        Unit("embedding", UnitKind.EMBEDDING, _embedding(model, names)),
        *_layers(model, names, "encoder.block", _stack(encoder, model.encoder_layers)),
        bridge,
        *_layers(model, names, "decoder.block", _stack(decoder, model.layers)),
        _head(model, names),
    )


def _stack(first: Architecture, count: int) -> list[Architecture]:
    """The first layer of a stack has the table of relative positions for all of them."""
    return [first, *[replace(first, relative_buckets=0)] * (count - 1)]
