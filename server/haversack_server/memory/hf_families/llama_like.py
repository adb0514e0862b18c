"""Families whose layers are Llama's: separate projections, rotary positions, a gated
feed-forward."""

from typing import Any

from haversack_server.memory.hf_families import readers
from haversack_server.memory.hf_families.family import (
    ATTENTION_BIAS,
    FFN_BIAS,
    OPTIONAL_WINDOW,
    WINDOW,
    Family,
)
from haversack_server.memory.traits import (
    Activation,
    Norm,
    Projection,
    QueryKeyNorm,
    Residual,
    Rotary,
)

WINDOW_DEFAULTS = {"windowed": False, "sliding_window": 4096}


def llama_like(model_type: str, class_name: str, **changes: Any) -> Family:
    """Make the row of a family that has Llama's defaults but for the changes."""
    defaults = {
        "kv_heads": None,
        "head_dim": None,
        "tied": False,
        "activation": Activation.SILU,
        "attention_dropout": 0.0,
        "max_positions": 2048,
    }
    defaults.update(changes.pop("defaults", {}))
    return Family(model_type=model_type, class_name=class_name, defaults=defaults, **changes)


_GEMMA_TRAITS = {"norm": Norm.RMS_FLOAT, "scaled_embedding": True}

LLAMA_LIKE = (
    llama_like(
        "llama",
        "LlamaForCausalLM",
        defaults={"attention_bias": False, "ffn_bias": False},
        spellings=ATTENTION_BIAS | FFN_BIAS,
    ),
    llama_like(
        "mistral",
        "MistralForCausalLM",
        defaults={"kv_heads": 8, "max_positions": 131072, "sliding_window": 4096},
        spellings=WINDOW,
    ),
    llama_like(
        "qwen2",
        "Qwen2ForCausalLM",
        defaults={"kv_heads": 32, "max_positions": 32768} | WINDOW_DEFAULTS,
        spellings=OPTIONAL_WINDOW,
        traits={"query_key_value_bias": True},
        unsaid=("qwen2 has a bias on its query, key and value projections; no key says so",),
    ),
    llama_like(
        "qwen3",
        "Qwen3ForCausalLM",
        defaults={
            "kv_heads": 32,
            "head_dim": 128,
            "attention_bias": False,
            "max_positions": 32768,
        }
        | WINDOW_DEFAULTS,
        spellings=ATTENTION_BIAS | OPTIONAL_WINDOW,
        traits={"query_key_norm": QueryKeyNorm.HEAD},
        unsaid=("qwen3 normalises its queries and keys per head; no key says so",),
    ),
    llama_like(
        "gemma",
        "GemmaForCausalLM",
        defaults={
            "kv_heads": 16,
            "head_dim": 256,
            "tied": True,
            "activation": Activation.GELU_TANH,
            "attention_bias": False,
            "max_positions": 8192,
        },
        # hidden_activation overrode hidden_act in files of 2024; both mean the tanh approximation.
        spellings=ATTENTION_BIAS | {"activation": ("hidden_activation",)},
        silent=frozenset({"hidden_act"}),
        traits=_GEMMA_TRAITS,
    ),
    llama_like(
        "gemma2",
        "Gemma2ForCausalLM",
        defaults={
            "kv_heads": 4,
            "head_dim": 256,
            "tied": True,
            "activation": Activation.GELU_TANH,
            "attention_bias": False,
            "attention_softcap": 50.0,
            "final_softcap": 30.0,
            "max_positions": 8192,
            "sliding_window": 4096,
        },
        spellings=ATTENTION_BIAS
        | WINDOW
        | {
            "activation": ("hidden_activation",),
            "attention_softcap": ("attn_logit_softcapping",),
            "final_softcap": ("final_logit_softcapping",),
        },
        traits=_GEMMA_TRAITS
        | {
            "sandwich_norms": True,
            "attention_masks": 2,  # layers with a window and layers without take turns
        },
    ),
    llama_like(
        "gemma3_text",
        "Gemma3ForCausalLM",
        # Published files leave out what equals the defaults.
        defaults={
            "hidden": 2304,
            "ffn": 9216,
            "layers": 26,
            "heads": 8,
            "kv_heads": 4,
            "head_dim": 256,
            "vocab": 262208,
            "tied": True,
            "activation": Activation.GELU_TANH,
            "attention_bias": False,
            "final_softcap": None,
            "max_positions": 131072,
            "sliding_window": 4096,
        },
        spellings=ATTENTION_BIAS
        | WINDOW
        | {
            "activation": ("hidden_activation",),
            "final_softcap": ("final_logit_softcapping",),
        },
        only={"attn_logit_softcapping": None},
        silent=frozenset({"sliding_window_pattern", "_sliding_window_pattern"}),
        traits=_GEMMA_TRAITS
        | {
            "sandwich_norms": True,
            "query_key_norm": QueryKeyNorm.HEAD,
            "attention_masks": 2,
        },
    ),
    llama_like(
        "granite",
        "GraniteForCausalLM",
        defaults={"attention_bias": False, "ffn_bias": False},
        spellings=ATTENTION_BIAS | FFN_BIAS,
        silent=frozenset({"attention_multiplier", "embedding_multiplier", "logits_scaling"})
        | {"residual_multiplier"},
        traits={"scaled_embedding": True, "scaled_branches": True, "scaled_logits": True},
    ),
    llama_like(
        "olmo",
        "OlmoForCausalLM",
        defaults={"attention_bias": False},
        spellings=ATTENTION_BIAS,
        silent=frozenset({"clip_qkv"}),
        traits={"norm": Norm.LAYER_PLAIN},
        unsaid=("olmo's norms have no weights; no key says so",),
    ),
    llama_like(
        "olmo2",
        "Olmo2ForCausalLM",
        defaults={"attention_bias": False},
        spellings=ATTENTION_BIAS,
        traits={
            "norm": Norm.RMS_WIDE,
            "residual": Residual.OUTPUT,
            "query_key_norm": QueryKeyNorm.WIDTH,
        },
        unsaid=("olmo2 normalises its queries and keys, all heads together; no key says so",),
    ),
    llama_like(
        "phi3",
        "Phi3ForCausalLM",
        defaults={
            "residual_dropout": 0.0,
            "max_positions": 4096,
            "sliding_window": None,
        },
        spellings=WINDOW | {"residual_dropout": ("resid_pdrop",)},
        silent=frozenset({"embd_pdrop"}),
        traits={
            "projection": Projection.COLUMNS,
            "fused_gate": True,
            "undropped_held": True,
            "rotary": Rotary.HALVES_AND_REST,
        },
        readers=(readers.partial_rotary(1.0),),
    ),
    llama_like(
        "smollm3",
        "SmolLM3ForCausalLM",
        defaults={
            "kv_heads": 4,
            "tied": True,
            "attention_bias": False,
            "ffn_bias": False,
            "max_positions": 32768,
        },
        spellings=ATTENTION_BIAS | FFN_BIAS,
        only={"use_sliding_window": False},
        silent=frozenset({"sliding_window"}),
        readers=(readers.without_rotary,),
    ),
    llama_like(
        "stablelm",
        "StableLmForCausalLM",
        defaults={"kv_heads": 32, "residual_dropout": 0.0, "max_positions": 4096},
        spellings={"residual_dropout": ("hidden_dropout",), "head_dim": ()},
        only={"qk_layernorm": False},
        traits={
            "norm": Norm.LAYER,
            "rotary": Rotary.HALVES_AND_REST,
            "parts_held": True,
            "branches_held": True,
            "norms_held": True,
        },
        readers=(readers.partial_rotary(0.25), readers.stablelm),
    ),
)
