"""Families with experts: Mixtral, Qwen's, OLMoE, GPT-OSS, Llama 4, DeepSeek's with latent
attention."""

from haversack_server.memory.hf_families import expert_readers as readers
from haversack_server.memory.hf_families.family import (
    ATTENTION_BIAS,
    FFN_BIAS,
    OPTIONAL_WINDOW,
    WINDOW,
    Spellings,
)
from haversack_server.memory.hf_families.llama_like import WINDOW_DEFAULTS, llama_like
from haversack_server.memory.traits import Norm, QueryKeyNorm, Rotary, Router, Routing

_PER_TOKEN: Spellings = {"experts_per_token": ("num_experts_per_tok",)}
_LOCAL: Spellings = _PER_TOKEN | {"experts": ("num_local_experts", "num_experts")}
_EXPERTS: Spellings = _PER_TOKEN | {"experts": ("num_experts", "num_local_experts")}
_UNUSED_HEADS = frozenset({"head_dim", "qk_head_dim", "num_key_value_heads"})

ROUTED = (
    llama_like(
        "mixtral",
        "MixtralForCausalLM",
        defaults={
            "kv_heads": 8,
            "experts": 8,
            "experts_per_token": 2,
            "max_positions": 131072,
            "sliding_window": None,
        },
        spellings=_LOCAL | WINDOW,
    ),
    llama_like(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        defaults={
            "kv_heads": 16,
            "experts": 60,
            "experts_per_token": 4,
            "max_positions": 32768,
            "attention_bias": True,
        }
        | WINDOW_DEFAULTS,
        spellings=_EXPERTS | OPTIONAL_WINDOW | {"attention_bias": ("qkv_bias",)},
        traits={"output_bias": False},
        readers=(readers.qwen_experts(1408, 5632),),
    ),
    llama_like(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        defaults={
            "kv_heads": 4,
            "experts": 128,
            "experts_per_token": 8,
            "attention_bias": False,
            "max_positions": 32768,
        }
        | WINDOW_DEFAULTS,
        spellings=_EXPERTS | ATTENTION_BIAS | OPTIONAL_WINDOW,
        traits={"query_key_norm": QueryKeyNorm.HEAD},
        readers=(readers.qwen_experts(768, 0),),
        unsaid=("qwen3_moe normalises its queries and keys per head; no key says so",),
    ),
    llama_like(
        "olmoe",
        "OlmoeForCausalLM",
        defaults={
            "experts": 64,
            "experts_per_token": 8,
            "attention_bias": False,
            "max_positions": 4096,
        },
        spellings=_EXPERTS | ATTENTION_BIAS,
        silent=frozenset({"clip_qkv"}),
        traits={"query_key_norm": QueryKeyNorm.WIDTH},
        readers=(readers.routed(narrow=True, normalised=False),),
        unsaid=("olmoe normalises its queries and keys, all heads together; no key says so",),
    ),
    llama_like(
        "gpt_oss",
        "GptOssForCausalLM",
        defaults={
            "kv_heads": 8,
            "head_dim": 64,
            "experts": 128,
            "experts_per_token": 4,
            "attention_bias": True,
            "max_positions": 131072,
            "sliding_window": 128,
        },
        spellings=_LOCAL | ATTENTION_BIAS | WINDOW,
        silent=frozenset({"initial_context_length", "experts_per_token"}),
        traits={
            "norm": Norm.RMS_WIDE,
            "attention_sinks": True,
            "attention_masks": 2,
            "softmax_in_float": False,
            "routing": Routing(router=Router.CHOSEN),
        },
        unsaid=("gpt_oss has a sink for each head and biases in its experts; no key says so",),
    ),
    llama_like(
        "llama4_text",
        "Llama4ForCausalLM",
        # Published files leave out what equals the defaults.
        defaults={
            "hidden": 5120,
            "ffn": 8192,
            "layers": 48,
            "heads": 40,
            "kv_heads": 8,
            "head_dim": 128,
            "vocab": 202048,
            "experts": 16,
            "experts_per_token": 1,
            "attention_bias": False,
            "max_positions": 131072,
        },
        spellings=_LOCAL | ATTENTION_BIAS,
        silent=frozenset({"for_llm_compression"}),
        traits={
            "rotary": Rotary.COMPLEX,
            "softmax_in_float": False,
            "attention_masks": 2,
            "branches_held": True,
        },
        readers=(readers.llama4,),
    ),
    llama_like(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        defaults={"attention_bias": False, "ffn_bias": False},
        spellings=ATTENTION_BIAS | FFN_BIAS | {"kv_heads": (), "head_dim": ()},
        silent=_UNUSED_HEADS,
        traits={"rotary": Rotary.COMPLEX},
        readers=(readers.latent(1536), readers.deepseek_v2),
    ),
    llama_like(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        defaults={"attention_bias": False, "max_positions": 4096},
        spellings=ATTENTION_BIAS | {"kv_heads": (), "head_dim": ()},
        silent=_UNUSED_HEADS,
        readers=(readers.latent(1536), readers.deepseek_v3),
    ),
)
