"""Random small configurations of every family, and the parameters of ours and of the real module.

Some keys are left out of a configuration, so that defaults are compared too.
"""

import importlib
import random
from typing import Any

from haversack_server.memory.architecture import Architecture, UnitKind

_CLASSES = {
    "bert": "AutoModelForMaskedLM",
    "roberta": "AutoModelForMaskedLM",
    "t5": "AutoModelForSeq2SeqLM",
    "vit": "AutoModelForImageClassification",
}


def random_config(family: str, seed: int) -> dict[str, Any]:
    """Draw a configuration of one family."""
    draw = random.Random(f"{family} {seed}")
    heads = draw.choice([32, 64])
    hidden = heads * draw.choice([2, 8])
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": draw.randint(1, 4),
        "num_attention_heads": heads,
        "intermediate_size": draw.randint(1, 99),
        "vocab_size": draw.randint(10, 99),
    }
    needed, optional = _keys(family, draw, hidden, heads)
    kept = {key: value for key, value in optional.items() if draw.random() < 0.7}
    made = _spelled(family, sizes) | needed | kept
    return {"model_type": family} | made


def _spelled(family: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Write the common sizes as the family does; some families derive one of them."""
    if family == "t5":
        names = ("d_model", "num_layers", "num_heads", "d_ff", "vocab_size")
        return dict(zip(names, sizes.values(), strict=True))
    if family in {"gpt2", "gptj"}:
        names = ("n_embd", "n_layer", "n_head", "n_inner", "vocab_size")
        return dict(zip(names, sizes.values(), strict=True))
    if family == "bloom":
        names = ("hidden_size", "n_layer", "n_head", "", "vocab_size")
        made: dict[str, Any] = dict(zip(names, sizes.values(), strict=True))
        del made[""]
        return made
    if family == "opt":
        return {("ffn_dim" if key == "intermediate_size" else key): sizes[key] for key in sizes}
    if family == "falcon":
        return {key: sizes[key] for key in sizes if key != "intermediate_size"}
    if family == "vit":
        return {key: sizes[key] for key in sizes if key != "vocab_size"}
    return dict(sizes)


_GROUPED = {"num_key_value_heads"}
_BIASED = _GROUPED | {"attention_bias"}
_OPTIONAL: dict[str, set[str]] = {
    "llama": _BIASED | {"head_dim", "mlp_bias"},
    "mistral": _GROUPED | {"head_dim"},
    "qwen2": _GROUPED,
    "qwen3": _BIASED | {"head_dim"},
    "gemma": _BIASED | {"head_dim"},
    "gemma2": _BIASED | {"head_dim"},
    "gemma3_text": _BIASED | {"head_dim"},
    "granite": _BIASED | {"mlp_bias"},
    "olmo": _BIASED,
    "olmo2": _BIASED,
    "phi3": _GROUPED,
    "smollm3": _BIASED | {"mlp_bias"},
    "stablelm": _GROUPED | {"use_qkv_bias", "use_parallel_residual"},
    "mixtral": _GROUPED | {"head_dim", "num_local_experts"},
    "qwen2_moe": _GROUPED
    | {"num_experts", "moe_intermediate_size", "shared_expert_intermediate_size", "qkv_bias"}
    | {"decoder_sparse_step", "mlp_only_layers"},
    "qwen3_moe": _BIASED
    | {"head_dim", "num_experts", "moe_intermediate_size", "decoder_sparse_step"}
    | {"mlp_only_layers"},
    "olmoe": _BIASED | {"num_experts"},
    "gpt_oss": _BIASED | {"head_dim", "num_local_experts"},
    "llama4_text": _BIASED
    | {"head_dim", "num_local_experts", "intermediate_size_mlp", "interleave_moe_layer_step"},
    "deepseek_v2": {"attention_bias", "mlp_bias", "q_lora_rank", "kv_lora_rank"}
    | {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "first_k_dense_replace"}
    | {"n_routed_experts", "n_shared_experts", "moe_intermediate_size"},
    "deepseek_v3": {"attention_bias", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"}
    | {"qk_rope_head_dim", "v_head_dim", "first_k_dense_replace", "n_shared_experts"}
    | {"n_routed_experts", "moe_intermediate_size"},
    "gpt2": {"n_positions"},
    "opt": {"enable_bias", "max_position_embeddings"},
    "bloom": set(),
    "starcoder2": _GROUPED | {"use_bias"},
    "gpt_neox": {"attention_bias", "use_parallel_residual"},
    "gptj": set(),
    "falcon": {"multi_query", "new_decoder_architecture", "num_kv_heads", "bias"}
    | {"parallel_attn", "num_ln_in_parallel_attn", "ffn_hidden_size"},
    "phi": _GROUPED | {"qk_layernorm"},
    "cohere": _BIASED | {"use_qk_norm"},
    "bert": {"type_vocab_size", "max_position_embeddings"},
    "roberta": {"type_vocab_size", "max_position_embeddings"},
    "vit": {"image_size", "patch_size", "num_channels", "qkv_bias"},
    "t5": {"d_kv", "num_decoder_layers", "feed_forward_proj", "relative_attention_num_buckets"},
}
_UNTIED = {"t5", "vit"}


def _keys(
    family: str, draw: random.Random, hidden: int, heads: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys that a configuration always has here, and keys that it may have."""
    values = _values(draw, heads)
    optional = {key: values[key] for key in sorted(_OPTIONAL[family])}
    if family not in _UNTIED:
        optional["tie_word_embeddings"] = draw.choice([True, False])
    needed: dict[str, Any] = {}
    if family.startswith("deepseek"):
        needed = {"num_experts_per_tok": 2}
    if family == "falcon" and "num_ln_in_parallel_attn" in optional:
        _make_falcon_consistent(optional)
    return needed, optional


def _make_falcon_consistent(optional: dict[str, Any]) -> None:
    """The real module has no name for a norm that some combinations would need."""
    if not optional["new_decoder_architecture"]:
        optional["num_ln_in_parallel_attn"] = 1
    optional["parallel_attn"] = optional["parallel_attn"] or optional["new_decoder_architecture"]


def _values(draw: random.Random, heads: int) -> dict[str, Any]:
    """A value for every key that a family may have."""
    switches = ("attention_bias", "mlp_bias", "use_qkv_bias", "use_parallel_residual", "qkv_bias")
    more = ("enable_bias", "use_bias", "use_qk_norm", "qk_layernorm", "bias", "multi_query")
    last = ("new_decoder_architecture", "parallel_attn")
    made: dict[str, Any] = {key: draw.choice([True, False]) for key in (*switches, *more, *last)}
    return made | {
        "num_key_value_heads": draw.choice([2, 8, 32]),
        "head_dim": draw.choice([4, 6]),
        "num_local_experts": draw.randint(2, 5),
        "num_experts": draw.randint(8, 9),
        "moe_intermediate_size": draw.randint(1, 50),
        "shared_expert_intermediate_size": draw.randint(1, 50),
        "decoder_sparse_step": draw.randint(1, 3),
        "mlp_only_layers": [draw.randint(0, 3)],
        "intermediate_size_mlp": draw.randint(1, 50),
        "interleave_moe_layer_step": draw.randint(1, 2),
        "q_lora_rank": draw.choice([None, 5, 12]),
        "kv_lora_rank": draw.randint(2, 20),
        "qk_nope_head_dim": draw.randint(2, 9),
        "qk_rope_head_dim": draw.choice([2, 4]),
        "v_head_dim": draw.randint(2, 9),
        "first_k_dense_replace": draw.randint(0, 3),
        "n_routed_experts": 8 * draw.randint(1, 3),
        "n_shared_experts": draw.randint(1, 3),
        "n_positions": 77,
        "max_position_embeddings": 71,
        "num_kv_heads": draw.choice([2, 8]),
        "num_ln_in_parallel_attn": draw.choice([1, 2]),
        "ffn_hidden_size": draw.randint(1, 99),
        "type_vocab_size": draw.randint(1, 4),
        "image_size": draw.choice([32, 48]),
        "patch_size": draw.choice([8, 10]),
        "num_channels": draw.choice([1, 3]),
        "d_kv": draw.randint(2, 9),
        "num_decoder_layers": draw.randint(1, 4),
        "feed_forward_proj": draw.choice(["relu", "gated-gelu"]),
        "relative_attention_num_buckets": draw.randint(4, 40),
    }


def ours(model: Architecture) -> dict[str, tuple[int, ...]]:
    """Return all parameters of ours by full name."""
    result = {}
    for unit in model.units:
        prefix = f"{unit.name}." if unit.kind is UnitKind.LAYER else ""
        result.update({f"{prefix}{row.name}": row.shape for row in unit.parameters})
    return result


def theirs(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return all parameters of the real module by name, tied ones under their first name."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    with torch.device("meta"):
        settings = transformers.AutoConfig.for_model(**config)
        settings.pad_token_id = settings.bos_token_id = settings.eos_token_id = None
        kind = _CLASSES.get(config["model_type"], "AutoModelForCausalLM")
        module = getattr(transformers, kind).from_config(settings)
    return {name: tuple(row.shape) for name, row in module.named_parameters()}
