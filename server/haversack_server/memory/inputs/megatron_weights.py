"""The weights of Megatron-LM's models: names, shapes, the axis that tensor parallelism splits.

Query, key and value are one product, and so are the two of a gated feed-forward part; experts are
stacked. Knows nothing of arguments.
"""

from dataclasses import replace

from haversack_server.memory.architecture import Architecture, Parameter, Unit, UnitKind
from haversack_server.memory.traits import Head, Latent, QueryKeyNorm, Stack
from haversack_server.memory.weights.modules import Parameters, linear, norm, whole_linear

_TOKENS = "embedding.word_embeddings.weight"


def with_megatron_units(model: Architecture) -> Architecture:
    """Return the architecture with its units: embedding, layers from 0, head."""
    if model.encoder_layers:
        return replace(model, units=_encoder_decoder(model))
    dense = model.dense
    own, of_dense = _layer(model), _layer(dense)
    layers = tuple(
        Unit(f"decoder.layers.{index}", UnitKind.LAYER, of_dense, variant=dense)
        if index in model.dense_layers
        else Unit(f"decoder.layers.{index}", UnitKind.LAYER, own)
        for index in range(model.layers)
    )
    return replace(model, units=(_embedding(model), *layers, _head(model)))


def _embedding(model: Architecture) -> Unit:
    tokens = Parameter(_TOKENS, (model.vocab, model.hidden), 0)
    positions = Parameter(
        "embedding.position_embeddings.weight", (model.max_positions, model.hidden)
    )
    kinds = Parameter("embedding.tokentype_embeddings.weight", (model.segments, model.hidden))
    parameters = (
        tokens,
        *((positions,) if model.learned_positions else ()),
        *((kinds,) if model.segments else ()),
    )
    return Unit("embedding", UnitKind.EMBEDDING, parameters)


def _encoder_decoder(model: Architecture) -> tuple[Unit, ...]:
    """T5's units; the bridge has the encoder's last norm and the decoder's embedding."""
    encoder = replace(model, stack=Stack.ENCODER, causal=False, units=())
    decoder = replace(model, stack=Stack.CROSS, encoder_layers=0, units=())
    of_encoder, of_decoder = _layer(encoder), (*_layer(decoder), *_crossing(model))
    return (
        _embedding(model),
        *(
            Unit(f"encoder.layers.{index}", UnitKind.LAYER, of_encoder, variant=encoder)
            for index in range(model.encoder_layers)
        ),
        Unit(
            "decoder.embedding",
            UnitKind.EMBEDDING,
            norm(model, "encoder.final_layernorm", model.hidden),
            tied_to=_TOKENS,
            variant=decoder,
        ),
        *(
            Unit(f"decoder.layers.{index}", UnitKind.LAYER, of_decoder, variant=decoder)
            for index in range(model.layers)
        ),
        _head(model),
    )


def _crossing(model: Architecture) -> Parameters:
    """Attention from a decoder's layer to the encoder's output: queries apart from the rest."""
    prefix, size, hidden = "cross_attention", model.heads * model.head_dim, model.hidden
    bias = model.query_key_value_bias
    return (
        *norm(model, "pre_cross_attn_layernorm", hidden),
        *linear(f"{prefix}.linear_q", size, hidden, bias=bias),
        *linear(f"{prefix}.linear_kv", 2 * size, hidden, bias=bias),
        *linear(f"{prefix}.linear_proj", hidden, size, bias=model.output_bias, axis=1),
    )


def _layer(model: Architecture) -> Parameters:
    return (
        *norm(model, "input_layernorm", model.hidden),
        *(_latent(model, model.latent) if model.latent else _attention(model)),
        *norm(model, "pre_mlp_layernorm", model.hidden),
        *(_moe(model) if model.experts else _mlp("mlp", model, model.ffn)),
    )


def _head(model: Architecture) -> Unit:
    parameters = (*norm(model, "decoder.final_layernorm", model.hidden), *_predicting(model))
    shares = _TOKENS if model.prediction_layers else ""
    if model.head is Head.MASKED:
        parameters = (*parameters, *_masked_head(model))
    if model.head_bias:
        parameters = (*parameters, Parameter("output_layer.bias", (model.vocab,), 0))
    if model.tied:
        return Unit("head", UnitKind.HEAD, parameters, tied_to=_TOKENS)
    weight = Parameter("output_layer.weight", (model.vocab, model.hidden), 0)
    return Unit("head", UnitKind.HEAD, (*parameters, weight), shares=shares)


def _predicting(model: Architecture) -> Parameters:
    """Layers for multi-token prediction; each is of the kind of the model's last layer."""
    of_layer = _layer(model.predictor)
    made: list[Parameter] = []
    for index in range(model.prediction_layers):
        prefix, hidden = f"mtp.layers.{index}", model.hidden
        for name in ("enorm", "hnorm", "final_layernorm"):
            made += norm(model, f"{prefix}.{name}", hidden)
        made += linear(f"{prefix}.eh_proj", hidden, 2 * hidden)
        layer = f"{prefix}.mtp_model_layer"
        made += (replace(each, name=f"{layer}.{each.name}") for each in of_layer)
    return tuple(made)


def _masked_head(model: Architecture) -> Parameters:
    """BERT's transform before the logits, and its pooler with the head for pairs."""
    pairs = (
        *whole_linear("pooler.dense", model.hidden, model.hidden, bias=True),
        *whole_linear("binary_head", model.labels, model.hidden, bias=True),
    )
    return (
        *whole_linear("lm_head.dense", model.hidden, model.hidden, bias=True),
        *norm(model, "lm_head.layer_norm", model.hidden),
        *(pairs if model.labels else ()),
    )


def _attention(model: Architecture) -> Parameters:
    queries = model.heads * model.head_dim
    projected = queries + 2 * model.kv_heads * model.head_dim
    bias, out = model.query_key_value_bias, model.output_bias
    normed = model.query_key_norm is QueryKeyNorm.HEAD
    names = ("q_layernorm", "k_layernorm") if normed else ()
    norms = (norm(model, f"self_attention.{name}", model.head_dim) for name in names)
    return (
        *linear("self_attention.linear_qkv", projected, model.hidden, bias=bias),
        *linear("self_attention.linear_proj", model.hidden, queries, bias=out, axis=1),
        *(parameter for made in norms for parameter in made),
    )


def _latent(model: Architecture, latent: Latent) -> Parameters:
    """Compressions are whole on every rank; what expands them is split by heads."""
    prefix, bias, hidden = "self_attention", model.output_bias, model.hidden
    normed = model.query_key_norm is QueryKeyNorm.HEAD
    value_norm = norm(model, f"{prefix}.kv_layernorm", latent.key_value_rank)
    queries = model.heads * (latent.plain + latent.rotary)
    compressed = latent.key_value_rank + latent.rotary
    expanded = model.heads * (latent.plain + latent.value)
    query: Parameters = linear(f"{prefix}.linear_q_proj", queries, hidden)
    if latent.query_rank is not None:
        query_norm = norm(model, f"{prefix}.q_layernorm", latent.query_rank)
        query = (
            *whole_linear(f"{prefix}.linear_q_down_proj", latent.query_rank, hidden),
            *(query_norm if normed else ()),
            *linear(f"{prefix}.linear_q_up_proj", queries, latent.query_rank),
        )
    return (
        *query,
        *whole_linear(f"{prefix}.linear_kv_down_proj", compressed, hidden),
        *(value_norm if normed else ()),
        *linear(f"{prefix}.linear_kv_up_proj", expanded, latent.key_value_rank),
        *linear(f"{prefix}.linear_proj", hidden, model.heads * latent.value, bias=bias, axis=1),
    )


def _mlp(name: str, model: Architecture, ffn: int) -> Parameters:
    first = ffn * (2 if model.gated else 1)
    return (
        *linear(f"{name}.linear_fc1", first, model.hidden, bias=model.ffn_bias),
        *linear(f"{name}.linear_fc2", model.hidden, ffn, bias=model.ffn_bias, axis=1),
    )


def _moe(model: Architecture) -> Parameters:
    experts, hidden, ffn = model.experts, model.hidden, model.ffn
    first = ffn * (2 if model.gated else 1)
    prefix = "mlp.experts"
    biases = (
        Parameter(f"{prefix}.linear_fc1.bias", (experts, first), 1, expert=True),
        Parameter(f"{prefix}.linear_fc2.bias", (experts, hidden), expert=True),
    )
    shared = model.routing.shared_ffn
    return (
        Parameter("mlp.router.weight", (experts, hidden)),
        Parameter(f"{prefix}.linear_fc1.weight", (experts, first, hidden), 1, expert=True),
        Parameter(f"{prefix}.linear_fc2.weight", (experts, hidden, ffn), 2, expert=True),
        *(biases if model.ffn_bias else ()),
        *(_mlp("mlp.shared_experts", model, shared) if shared else ()),
    )
