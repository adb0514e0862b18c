"""What transformers calls the parts of a layer and of a model, family by family.

Llama's names are the defaults; a family's row has what differs. A layer's names are relative to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of modules; a weight is the module's name and ``.weight``.

    ``side_norms`` are the norms of parallel branches where they are not the usual two;
    ``transposed`` modules keep their weight as (inputs, outputs).
    """

    embedding: str = "model.embed_tokens"
    embedding_norm: str = ""
    positions: str = ""
    segments: str = ""
    layers: str = "model.layers"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    head_bias: str = "lm_head.bias"
    head_dense: str = ""
    head_norm: str = ""
    input_norm: str = "input_layernorm"
    side_norms: tuple[str, ...] = ()
    feed_forward_norm: str = "post_attention_layernorm"
    after_attention_norm: str = "post_attention_layernorm"
    after_feed_forward_norm: str = "post_feedforward_layernorm"
    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    value: str = "self_attn.v_proj"
    joined: str = "self_attn.qkv_proj"
    output: str = "self_attn.o_proj"
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    gate_and_up: str = "mlp.gate_up_proj"
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared: str = "mlp.shared_expert"
    shared_gate: str = "mlp.shared_expert_gate"
    transposed: bool = False


_LLAMA = Names()
_SANDWICH = replace(_LLAMA, feed_forward_norm="pre_feedforward_layernorm")
_GPT2 = Names(
    embedding="transformer.wte",
    positions="transformer.wpe",
    layers="transformer.h",
    final_norm="transformer.ln_f",
    input_norm="ln_1",
    feed_forward_norm="ln_2",
    joined="attn.c_attn",
    output="attn.c_proj",
    up="mlp.c_fc",
    down="mlp.c_proj",
    transposed=True,
)
_GPTJ = replace(
    _GPT2,
    query="attn.q_proj",
    key="attn.k_proj",
    value="attn.v_proj",
    output="attn.out_proj",
    up="mlp.fc_in",
    down="mlp.fc_out",
    transposed=False,
)
_BLOOM = Names(
    embedding="transformer.word_embeddings",
    embedding_norm="transformer.word_embeddings_layernorm",
    layers="transformer.h",
    final_norm="transformer.ln_f",
    joined="self_attention.query_key_value",
    output="self_attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
_NEOX = Names(
    embedding="gpt_neox.embed_in",
    layers="gpt_neox.layers",
    final_norm="gpt_neox.final_layer_norm",
    joined="attention.query_key_value",
    output="attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
_OPT = Names(
    embedding="model.decoder.embed_tokens",
    positions="model.decoder.embed_positions",
    layers="model.decoder.layers",
    final_norm="model.decoder.final_layer_norm",
    input_norm="self_attn_layer_norm",
    feed_forward_norm="final_layer_norm",
    output="self_attn.out_proj",
    up="fc1",
    down="fc2",
)
_PHI = replace(
    _LLAMA,
    final_norm="model.final_layernorm",
    output="self_attn.dense",
    query_norm="self_attn.q_layernorm",
    key_norm="self_attn.k_layernorm",
    up="mlp.fc1",
    down="mlp.fc2",
)
_BERT = Names(
    embedding="bert.embeddings.word_embeddings",
    embedding_norm="bert.embeddings.LayerNorm",
    positions="bert.embeddings.position_embeddings",
    segments="bert.embeddings.token_type_embeddings",
    layers="bert.encoder.layer",
    head="cls.predictions.decoder",
    head_bias="cls.predictions.bias",
    head_dense="cls.predictions.transform.dense",
    head_norm="cls.predictions.transform.LayerNorm",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    after_attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    after_feed_forward_norm="output.LayerNorm",
)
_ROBERTA = replace(
    _BERT,
    embedding="roberta.embeddings.word_embeddings",
    embedding_norm="roberta.embeddings.LayerNorm",
    positions="roberta.embeddings.position_embeddings",
    segments="roberta.embeddings.token_type_embeddings",
    layers="roberta.encoder.layer",
    head="lm_head.decoder",
    head_bias="lm_head.bias",
    head_dense="lm_head.dense",
    head_norm="lm_head.layer_norm",
)
_VIT = Names(
    embedding="vit.embeddings",
    layers="vit.layers",
    final_norm="vit.layernorm",
    head="classifier",
    head_bias="classifier.bias",
    input_norm="layernorm_before",
    feed_forward_norm="layernorm_after",
    query="attention.q_proj",
    key="attention.k_proj",
    value="attention.v_proj",
    output="attention.o_proj",
    up="mlp.fc1",
    down="mlp.fc2",
)
_T5 = Names(
    embedding="shared",
    final_norm="decoder.final_layer_norm",
    input_norm="layer.0.layer_norm",
    query="layer.0.SelfAttention.q",
    key="layer.0.SelfAttention.k",
    value="layer.0.SelfAttention.v",
    output="layer.0.SelfAttention.o",
    gate="layer.1.DenseReluDense.wi_0",
    up="layer.1.DenseReluDense.wi",
    down="layer.1.DenseReluDense.wo",
    feed_forward_norm="layer.1.layer_norm",
)

_NAMES: Mapping[str, Names] = MappingProxyType(
    {
        "bert": _BERT,
        "bloom": _BLOOM,
        "deepseek_v2": replace(_LLAMA, shared="mlp.shared_experts"),
        "deepseek_v3": replace(_LLAMA, shared="mlp.shared_experts"),
        "falcon": replace(_BLOOM, embedding_norm="", side_norms=("ln_attn", "ln_mlp")),
        "gemma2": _SANDWICH,
        "gemma3_text": _SANDWICH,
        "gpt2": _GPT2,
        "gpt_neox": _NEOX,
        "gpt_oss": replace(_LLAMA, router="mlp.router"),
        "gptj": _GPTJ,
        "llama4_text": replace(
            _LLAMA,
            gate="feed_forward.gate_proj",
            up="feed_forward.up_proj",
            down="feed_forward.down_proj",
            router="feed_forward.router",
            experts="feed_forward.experts",
            shared="feed_forward.shared_expert",
        ),
        "opt": _OPT,
        "phi": _PHI,
        "roberta": _ROBERTA,
        "starcoder2": replace(_LLAMA, up="mlp.c_fc", down="mlp.c_proj"),
        "t5": _T5,
        "vit": _VIT,
    }
)


def names_of(family: str) -> Names:
    """Return the names of a family, Llama's where it has none of its own."""
    return _NAMES.get(family, _LLAMA)
