"""Parameters of the modules that layers are made of: products, norms, attention, experts.

Column splits follow Megatron: what makes heads or feed-forward columns is split by outputs, what
takes them back to the residual stream by inputs.
"""

from haversack_server.memory.architecture import Architecture, Norm, Parameter
from haversack_server.memory.traits import Latent, Projection, QueryKeyNorm, Router
from haversack_server.memory.weights.names import Names

Parameters = tuple[Parameter, ...]


def norm(model: Architecture, name: str, *sizes: int) -> Parameters:
    """A weight, and LayerNorm's bias; nothing where the norm has neither."""
    if model.norm is Norm.LAYER_PLAIN:
        return ()
    weight = Parameter(f"{name}.weight", sizes)
    if model.norm is Norm.LAYER and model.norm_bias:
        return weight, Parameter(f"{name}.bias", sizes)
    return (weight,)


def linear(name: str, rows: int, columns: int, *, bias: bool = False, axis: int = 0) -> Parameters:
    """A weight of ``rows`` outputs and ``columns`` inputs; the bias of a row split is whole."""
    weight = Parameter(f"{name}.weight", (rows, columns), axis)
    if not bias:
        return (weight,)
    return weight, Parameter(f"{name}.bias", (rows,), 0 if axis == 0 else None)


def conv1d(name: str, rows: int, columns: int, *, bias: bool = True, axis: int = 0) -> Parameters:
    """GPT-2's module for a product, which keeps its weight as (inputs, outputs)."""
    weight, *others = linear(name, rows, columns, bias=bias, axis=axis)
    return Parameter(weight.name, (columns, rows), 1 - axis), *others


def whole_linear(name: str, rows: int, columns: int, *, bias: bool = False) -> Parameters:
    """A product that tensor parallelism does not split."""
    return tuple(Parameter(row.name, row.shape) for row in linear(name, rows, columns, bias=bias))


def attention(model: Architecture, names: Names) -> Parameters:
    """Projections of queries, keys and values, their norms, and the projection of the result."""
    if model.latent is not None:
        return _latent(model, names, model.latent)
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    bias, make = model.query_key_value_bias, conv1d if names.transposed else linear
    sizes: tuple[tuple[str, int], ...]
    if model.projection is Projection.SEPARATE:
        sizes = ((names.query, queries), (names.key, keys), (names.value, keys))
    else:
        sizes = ((names.joined, queries + 2 * keys),)
    projections = (make(name, size, model.hidden, bias=bias) for name, size in sizes)
    output = make(names.output, model.hidden, queries, bias=model.output_bias, axis=1)
    sinks = (Parameter(names.sinks, (model.heads,), 0),) if model.attention_sinks else ()
    return (
        *(parameter for made in projections for parameter in made),
        *output,
        *_query_key_norms(model, names),
        *sinks,
    )


def _query_key_norms(model: Architecture, names: Names) -> Parameters:
    size, heads, kv_heads = model.head_dim, model.heads, model.kv_heads
    kind = model.query_key_norm
    if kind is QueryKeyNorm.HEAD:
        return (*norm(model, names.query_norm, size), *norm(model, names.key_norm, size))
    if kind is QueryKeyNorm.HEADS:
        pairs = ((names.query_norm, heads), (names.key_norm, kv_heads))
        return tuple(Parameter(f"{name}.weight", (count, size), 0) for name, count in pairs)
    if kind is QueryKeyNorm.WIDTH:
        queries = norm(model, names.query_norm, heads * size)
        return (*queries, *norm(model, names.key_norm, kv_heads * size))
    return ()


def _latent(model: Architecture, names: Names, latent: Latent) -> Parameters:
    """Compressions are whole on every rank; what expands them is split by heads."""
    prefix, bias = names.query.rsplit(".", 1)[0], model.query_key_value_bias
    queries = model.heads * (latent.plain + latent.rotary)
    compressed = latent.key_value_rank + latent.rotary
    expanded = model.heads * (latent.plain + latent.value)
    if latent.query_rank is None:
        query = linear(names.query, queries, model.hidden)
    else:
        query = (
            *whole_linear(f"{prefix}.q_a_proj", latent.query_rank, model.hidden, bias=bias),
            *norm(model, f"{prefix}.q_a_layernorm", latent.query_rank),
            *linear(f"{prefix}.q_b_proj", queries, latent.query_rank),
        )
    return (
        *query,
        *whole_linear(f"{prefix}.kv_a_proj_with_mqa", compressed, model.hidden, bias=bias),
        *norm(model, f"{prefix}.kv_a_layernorm", latent.key_value_rank),
        *linear(f"{prefix}.kv_b_proj", expanded, latent.key_value_rank),
        *linear(names.output, model.hidden, model.heads * latent.value, bias=bias, axis=1),
    )


def feed_forward(model: Architecture, names: Names) -> Parameters:
    """Plain, gated, gated in one product, or experts."""
    if model.experts:
        return _experts(model, names)
    make, bias = conv1d if names.transposed else linear, model.ffn_bias
    down = make(names.down, model.hidden, model.ffn, bias=bias, axis=1)
    if model.fused_gate:
        return (*make(names.gate_and_up, 2 * model.ffn, model.hidden, bias=bias), *down)
    gate = make(names.gate, model.ffn, model.hidden, bias=bias) if model.gated else ()
    return (*gate, *make(names.up, model.ffn, model.hidden, bias=bias), *down)


def _experts(model: Architecture, names: Names) -> Parameters:
    return (*_router(model, names), *_stacked(model, names), *_shared(model, names))


def _router(model: Architecture, names: Names) -> Parameters:
    bias = model.routing.router is Router.CHOSEN
    return whole_linear(names.router, model.experts, model.hidden, bias=bias)


def _stacked(model: Architecture, names: Names) -> Parameters:
    """The weights of all experts, one tensor each way; some families keep them transposed."""
    experts, hidden, ffn = model.experts, model.hidden, model.ffn
    up, down = f"{names.experts}.gate_up_proj", f"{names.experts}.down_proj"
    if model.routing.router not in (Router.CHOSEN, Router.DENSE):
        return (
            Parameter(up, (experts, 2 * ffn, hidden), 1, expert=True),
            Parameter(down, (experts, hidden, ffn), 2, expert=True),
        )
    made = (
        Parameter(up, (experts, hidden, 2 * ffn), 2, expert=True),
        Parameter(down, (experts, ffn, hidden), 1, expert=True),
    )
    if model.routing.router is Router.DENSE:
        return made
    biases = (
        Parameter(f"{up}_bias", (experts, 2 * ffn), 1, expert=True),
        Parameter(f"{down}_bias", (experts, hidden), expert=True),
    )
    return (*made, *biases)


def _shared(model: Architecture, names: Names) -> Parameters:
    size, hidden = model.routing.shared_ffn, model.hidden
    if not size:
        return ()
    gate = whole_linear(names.shared_gate, 1, hidden) if model.routing.shared_gate else ()
    bias = model.ffn_bias
    return (
        *linear(f"{names.shared}.gate_proj", size, hidden, bias=bias),
        *linear(f"{names.shared}.up_proj", size, hidden, bias=bias),
        *linear(f"{names.shared}.down_proj", hidden, size, bias=bias, axis=1),
        *gate,
    )
