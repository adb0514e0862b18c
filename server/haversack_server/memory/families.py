"""The units of each supported model family: which weights a module has, under which names.

Shapes and names are those of Hugging Face transformers 5 (read in its modeling files and checked
against its modules on the meta device). Knows nothing of configuration files.
"""

from dataclasses import replace

from haversack_server.memory.architecture import Architecture, Norm, Parameter, Unit, UnitKind


def with_units(architecture: Architecture) -> Architecture:
    """Return the architecture with its units: embedding, layers from 0, head."""
    gpt2 = architecture.family == "gpt2"
    layer = _gpt2_layer(architecture) if gpt2 else _llama_layer(architecture)
    prefix = "transformer.h" if gpt2 else "model.layers"
    layers = tuple(
        Unit(f"{prefix}.{index}", UnitKind.LAYER, layer) for index in range(architecture.layers)
    )
    units = (_embedding(architecture), *layers, _head(architecture))
    return replace(architecture, units=units)


def _embedding(model: Architecture) -> Unit:
    name = "transformer.wte.weight" if model.family == "gpt2" else "model.embed_tokens.weight"
    tokens = Parameter(name, (model.vocab, model.hidden), 0)
    if not model.learned_positions:
        return Unit("embedding", UnitKind.EMBEDDING, (tokens,))
    positions = Parameter("transformer.wpe.weight", (model.max_positions, model.hidden))
    return Unit("embedding", UnitKind.EMBEDDING, (tokens, positions))


def _head(model: Architecture) -> Unit:
    final = "transformer.ln_f" if model.family == "gpt2" else "model.norm"
    norm = _norm(final, model.hidden, model.norm)
    if model.tied:
        tied_to = _embedding(model).parameters[0].name
        return Unit("head", UnitKind.HEAD, norm, tied_to=tied_to)
    weight = Parameter("lm_head.weight", (model.vocab, model.hidden), 0)
    return Unit("head", UnitKind.HEAD, (*norm, weight))


def _norm(name: str, size: int, norm: Norm) -> tuple[Parameter, ...]:
    weight = Parameter(f"{name}.weight", (size,))
    if norm is Norm.LAYER:
        return weight, Parameter(f"{name}.bias", (size,))
    return (weight,)


def _linear(
    name: str, rows: int, columns: int, *, bias: bool = False, axis: int = 0
) -> tuple[Parameter, ...]:
    """A weight of ``rows`` outputs and ``columns`` inputs; the bias of a row split is whole."""
    weight = Parameter(f"{name}.weight", (rows, columns), axis)
    if not bias:
        return (weight,)
    return weight, Parameter(f"{name}.bias", (rows,), 0 if axis == 0 else None)


def _llama_layer(model: Architecture) -> tuple[Parameter, ...]:
    return (
        *_norm("input_layernorm", model.hidden, model.norm),
        *_attention(model),
        *_norm("post_attention_layernorm", model.hidden, model.norm),
        *_sandwich(model),
        *(_experts(model) if model.experts else _feed_forward(model)),
    )


def _attention(model: Architecture) -> tuple[Parameter, ...]:
    queries = model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    bias = model.query_key_value_bias
    norms = ("self_attn.q_norm", "self_attn.k_norm") if model.qk_norm else ()
    return (
        *_linear("self_attn.q_proj", queries, model.hidden, bias=bias),
        *_linear("self_attn.k_proj", keys, model.hidden, bias=bias),
        *_linear("self_attn.v_proj", keys, model.hidden, bias=bias),
        *_linear("self_attn.o_proj", model.hidden, queries, bias=model.output_bias, axis=1),
        *(Parameter(f"{name}.weight", (model.head_dim,)) for name in norms),
    )


def _sandwich(model: Architecture) -> tuple[Parameter, ...]:
    if not model.sandwich_norms:
        return ()
    return (
        *_norm("pre_feedforward_layernorm", model.hidden, model.norm),
        *_norm("post_feedforward_layernorm", model.hidden, model.norm),
    )


def _feed_forward(model: Architecture) -> tuple[Parameter, ...]:
    bias = model.ffn_bias
    return (
        *_linear("mlp.gate_proj", model.ffn, model.hidden, bias=bias),
        *_linear("mlp.up_proj", model.ffn, model.hidden, bias=bias),
        *_linear("mlp.down_proj", model.hidden, model.ffn, bias=bias, axis=1),
    )


def _experts(model: Architecture) -> tuple[Parameter, ...]:
    experts, hidden, ffn = model.experts, model.hidden, model.ffn
    return (
        Parameter("mlp.gate.weight", (experts, hidden)),
        Parameter("mlp.experts.gate_up_proj", (experts, 2 * ffn, hidden), 1),
        Parameter("mlp.experts.down_proj", (experts, hidden, ffn), 2),
    )


def _gpt2_layer(model: Architecture) -> tuple[Parameter, ...]:
    # Conv1D keeps its weight as (inputs, outputs), so the axes are the other way round.
    hidden, ffn = model.hidden, model.ffn
    return (
        *_norm("ln_1", hidden, model.norm),
        *_conv("attn.c_attn", hidden, 3 * hidden, axis=1),
        *_conv("attn.c_proj", hidden, hidden, axis=0),
        *_norm("ln_2", hidden, model.norm),
        *_conv("mlp.c_fc", hidden, ffn, axis=1),
        *_conv("mlp.c_proj", ffn, hidden, axis=0),
    )


def _conv(name: str, rows: int, columns: int, *, axis: int) -> tuple[Parameter, ...]:
    weight = Parameter(f"{name}.weight", (rows, columns), axis)
    return weight, Parameter(f"{name}.bias", (columns,), 0 if axis == 1 else None)
