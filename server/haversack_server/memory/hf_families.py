"""How each supported family writes its configuration: spellings, defaults, traits.

One table row per ``model_type`` of Hugging Face transformers; defaults are those of its
configuration classes (transformers 5.24, read), which apply to keys that a file lacks.
Knows nothing of parsing, and nothing of which weights a family has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from haversack_server.memory.architecture import Activation, Norm

# Keys that change no byte of a training step. torch_dtype says how the weights are stored on
# disk, not the precision of training; the attention window changes no size that is kept.
SILENT_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "id2label",
        "initializer_range",
        "label2id",
        "layer_norm_epsilon",
        "layer_types",
        "max_window_layers",
        "model_type",
        "n_ctx",
        "original_max_position_embeddings",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "query_pre_attn_scalar",
        "return_dict",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "sep_token_id",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "task_specific_params",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_cache",
    }
)

# Off they change no byte; on, the caller is given tensors that no term counts.
_KEPT_IF_ON = frozenset({"output_attentions", "output_hidden_states"})


def silent_keys(values: Mapping[str, Any]) -> frozenset[str]:
    """Name the keys that change no byte with the values that a file gives them."""
    return SILENT_KEYS | {key for key in _KEPT_IF_ON if not values.get(key)}


# Switches that change what is saved or which weights there are; only this value is modelled.
ONLY_VALUES: Mapping[str, Any] = MappingProxyType(
    {
        "add_cross_attention": False,
        "is_encoder_decoder": False,
        "reorder_and_upcast_attn": False,
        "use_bidirectional_attention": False,
    }
)

_COMMON_SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hidden": ("hidden_size",),
        "layers": ("num_hidden_layers",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "head_dim": ("head_dim",),
        "ffn": ("intermediate_size",),
        "vocab": ("vocab_size",),
        "max_positions": ("max_position_embeddings",),
        "tied": ("tie_word_embeddings",),
        "activation": ("hidden_act",),
        "attention_dropout": ("attention_dropout",),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One ``model_type``: spellings of its keys, defaults of missing ones, traits no key states.

    A default of None means "derived": key/value heads from heads, head size from hidden and
    heads, GPT-2's feed-forward size from hidden. ``unsaid`` are sentences on traits that the
    family's files never state.
    """

    model_type: str
    class_name: str
    defaults: Mapping[str, Any]
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traits: Mapping[str, Any] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()

    def keys(self, noun: str) -> tuple[str, ...]:
        """Return the spellings of one of our nouns, the family's own first; () if it has none."""
        return self.spellings.get(noun, _COMMON_SPELLINGS.get(noun, ()))


def _llama_like(model_type: str, class_name: str, **changes: Any) -> Family:
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


_ATTENTION_BIAS = {"attention_bias": ("attention_bias",)}
_WINDOW_DEFAULTS = {"windowed": False, "sliding_window": 4096}
_OPTIONAL_WINDOW = {"sliding_window": ("sliding_window",), "windowed": ("use_sliding_window",)}

_FAMILIES = (
    _llama_like(
        "llama",
        "LlamaForCausalLM",
        defaults={"attention_bias": False, "ffn_bias": False},
        spellings=_ATTENTION_BIAS | {"ffn_bias": ("mlp_bias",)},
    ),
    _llama_like(
        "mistral",
        "MistralForCausalLM",
        defaults={"kv_heads": 8, "max_positions": 131072, "sliding_window": 4096},
        spellings={"sliding_window": ("sliding_window",)},
    ),
    _llama_like(
        "qwen2",
        "Qwen2ForCausalLM",
        defaults={"kv_heads": 32, "max_positions": 32768} | _WINDOW_DEFAULTS,
        spellings=_OPTIONAL_WINDOW,
        traits={"query_key_value_bias": True},
        unsaid=("qwen2 has a bias on its query, key and value projections; no key says so",),
    ),
    _llama_like(
        "qwen3",
        "Qwen3ForCausalLM",
        defaults={
            "kv_heads": 32,
            "head_dim": 128,
            "attention_bias": False,
            "max_positions": 32768,
        }
        | _WINDOW_DEFAULTS,
        spellings=_ATTENTION_BIAS | _OPTIONAL_WINDOW,
        traits={"qk_norm": True},
        unsaid=("qwen3 normalises its queries and keys per head; no key says so",),
    ),
    _llama_like(
        "mixtral",
        "MixtralForCausalLM",
        defaults={
            "kv_heads": 8,
            "experts": 8,
            "experts_per_token": 2,
            "max_positions": 131072,
            "sliding_window": None,
        },
        spellings={
            "experts": ("num_local_experts", "num_experts"),
            "experts_per_token": ("num_experts_per_tok",),
            "sliding_window": ("sliding_window",),
        },
    ),
    _llama_like(
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
        spellings=_ATTENTION_BIAS
        | {
            "activation": ("hidden_activation",),
            "attention_softcap": ("attn_logit_softcapping",),
            "final_softcap": ("final_logit_softcapping",),
            "sliding_window": ("sliding_window",),
        },
        traits={
            "norm": Norm.RMS_FLOAT,
            "sandwich_norms": True,
            "scaled_embedding": True,
            "attention_masks": 2,  # layers with a window and layers without take turns
        },
    ),
    Family(
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        defaults={
            "ffn": None,
            "tied": True,
            "activation": Activation.GELU_NEW,
            "max_positions": 1024,
            "attention_dropout": 0.1,
            "residual_dropout": 0.1,
            "embedding_dropout": 0.1,
        },
        spellings={
            "hidden": ("n_embd", "hidden_size"),
            "layers": ("n_layer", "num_hidden_layers"),
            "heads": ("n_head", "num_attention_heads"),
            "kv_heads": (),
            "head_dim": (),
            "ffn": ("n_inner",),
            "max_positions": ("n_positions", "max_position_embeddings"),
            "activation": ("activation_function",),
            "attention_dropout": ("attn_pdrop",),
            "residual_dropout": ("resid_pdrop",),
            "embedding_dropout": ("embd_pdrop",),
        },
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "fused_qkv": True,
            "learned_positions": True,
            "softmax_in_float": False,
            "query_key_value_bias": True,
            "output_bias": True,
            "ffn_bias": True,
        },
    ),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({row.model_type: row for row in _FAMILIES})
