"""What a family's row says, and the keys that mean the same to all families."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haversack_server.memory.hf_reader import Reader

# Keys that change no byte of a training step. torch_dtype says how the weights are stored on
# disk, not the precision of training; the attention window changes no size that is kept.
SILENT_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_chunk_size",
        "attn_scale",
        "attn_temperature_tuning",
        "aux_loss_alpha",
        "auto_map",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "default_theta",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "floor_scale",
        "for_llm_compression",
        "id2label",
        "init_std",
        "initializer_factor",
        "initializer_range",
        "label2id",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "layer_types",
        "max_window_layers",
        "model_type",
        "n_ctx",
        "norm_eps",
        "norm_epsilon",
        "original_max_position_embeddings",
        "output_router_logits",
        "pad_token_id",
        "position_embedding_type",
        "prefix",
        "pretraining_tp",
        "query_pre_attn_scalar",
        "return_dict",
        "rms_norm_eps",
        "rope_local_base_freq",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "rotary_emb_base",
        "routed_scaling_factor",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "scoring_func",
        "sep_token_id",
        "seq_aux",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "swiglu_alpha",
        "swiglu_limit",
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
        "is_decoder": False,
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
Traits = Callable[["Reader", dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One ``model_type``: spellings of its keys, defaults of missing ones, traits no key states.

    A default of None means "derived": key/value heads from heads, head size from hidden and heads,
    the feed-forward size from hidden. ``readers`` take traits from keys that few families have,
    given
    what was read before. ``only`` are switches of which one value alone is modelled, ``silent`` are
    keys of this family that change no byte. ``unsaid`` are sentences on traits that the family's
    files never state.
    """

    model_type: str
    class_name: str
    defaults: Mapping[str, Any]
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traits: Mapping[str, Any] = field(default_factory=dict)
    readers: tuple[Traits, ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    unsaid: tuple[str, ...] = ()

    def keys(self, noun: str) -> tuple[str, ...]:
        """Return the spellings of one of our nouns, the family's own first; () if it has none."""
        return self.spellings.get(noun, _COMMON_SPELLINGS.get(noun, ()))


Spellings = dict[str, tuple[str, ...]]
# Spellings of nouns that several families share.
ATTENTION_BIAS: Spellings = {"attention_bias": ("attention_bias",)}
FFN_BIAS: Spellings = {"ffn_bias": ("mlp_bias",)}
WINDOW: Spellings = {"sliding_window": ("sliding_window",)}
OPTIONAL_WINDOW: Spellings = WINDOW | {"windowed": ("use_sliding_window",)}
