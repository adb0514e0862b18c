"""Small models of every family with their real layers, run as the whole model calls them.

Sizes are chosen such that no activation of 53 tokens has the shape of a parameter.
"""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from haversack_server.memory.architecture import Architecture, UnitKind
from haversack_server.memory.hf_config import read_hf_config

SEQ, TARGET_SEQ = 53, 40
_TOKENS: dict[str, Any] = {"vocab_size": 100, "pad_token_id": 0, "eos_token_id": 0}
_SIZES = _TOKENS | {
    "bos_token_id": 0,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 176,
}
_WHOLE = {key: _SIZES[key] for key in _SIZES if key != "num_key_value_heads"}
_GPT = _TOKENS | {"bos_token_id": 0, "n_embd": 64, "n_layer": 2, "n_head": 4}
_FALCON = {key: _WHOLE[key] for key in _WHOLE if key != "intermediate_size"}
_VIT = {key: _WHOLE[key] for key in _WHOLE if not key.endswith("token_id") and key != "vocab_size"}
_T5: dict[str, Any] = _TOKENS | {
    "d_model": 64,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 176,
    "d_kv": 24,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.0,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_DEEPSEEK: dict[str, Any] = _WHOLE | {
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "q_lora_rank": 20,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 12,
    "v_head_dim": 16,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 2,
}
_OPT: dict[str, Any] = {key: _WHOLE[key] for key in _WHOLE if key != "intermediate_size"} | {
    "ffn_dim": 176,
    "word_embed_proj_dim": 64,
}


def _of(family: str, sizes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"model_type": family} | sizes | changes


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma": _of("gemma", _SIZES, head_dim=24),
    "gemma3": _of("gemma3_text", _SIZES, head_dim=24),
    "granite": _of("granite", _SIZES),
    "olmo": _of("olmo", _SIZES),
    "olmo2": _of("olmo2", _SIZES),
    "phi3": _of("phi3", _SIZES),
    "smollm3": _of("smollm3", _SIZES),
    "stablelm": _of("stablelm", _SIZES),
    "stablelm, parallel": _of("stablelm", _SIZES, use_parallel_residual=True, use_qkv_bias=True),
    "starcoder2": _of("starcoder2", _SIZES),
    "cohere": _of("cohere", _SIZES),
    "cohere, normalised": _of("cohere", _SIZES, use_qk_norm=True),
    "phi": _of("phi", _SIZES),
    "phi, normalised": _of("phi", _SIZES, qk_layernorm=True),
    "phi with dropout": _of("phi", _SIZES, resid_pdrop=0.1),
    "gpt_neox": _of("gpt_neox", _WHOLE),
    "gpt_neox, sequential": _of("gpt_neox", _WHOLE, use_parallel_residual=False, rotary_pct=1.0),
    "gpt_neox with dropout": _of("gpt_neox", _WHOLE, hidden_dropout=0.1),
    "opt": _of("opt", _OPT, dropout=0.0),
    "opt with dropout": _of("opt", _OPT, dropout=0.1),
    "gptj": _of("gptj", _GPT, rotary_dim=8),
    "bloom": _of("bloom", _TOKENS, hidden_size=64, n_layer=2, n_head=4, bos_token_id=0),
    "falcon, one key head": _of("falcon", _FALCON),
    "falcon, groups": _of(
        "falcon", _FALCON, new_decoder_architecture=True, num_kv_heads=2, bias=True
    ),
    "falcon, sequential": _of("falcon", _FALCON, multi_query=False, parallel_attn=False),
    "bert": _of("bert", _WHOLE, **_NO_DROPOUT),
    "bert with dropout": _of("bert", _WHOLE),
    "roberta": _of("roberta", _WHOLE, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.0),
    "vit": _of("vit", _VIT, image_size=28, patch_size=4),
    "vit with dropout": _of(
        "vit",
        _VIT,
        image_size=28,
        patch_size=4,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    ),
    "t5": _of("t5", _T5),
    "t5 with dropout": _of("t5", _T5, dropout_rate=0.1),
    "t5, gated": _of("t5", _T5, feed_forward_proj="gated-gelu"),
    "mixtral": _of("mixtral", _SIZES, num_local_experts=4),
    "qwen2_moe": _of("qwen2_moe", _SIZES, **_EXPERTS, shared_expert_intermediate_size=40),
    "qwen3_moe": _of("qwen3_moe", _SIZES, **_EXPERTS, head_dim=24, norm_topk_prob=True),
    "olmoe": _of("olmoe", _SIZES, num_experts=4, num_experts_per_tok=2),
    "gpt_oss": _of(
        "gpt_oss",
        _SIZES,
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=24,
        sliding_window=512,
    ),
    "llama4": _of(
        "llama4_text",
        _SIZES,
        num_local_experts=4,
        num_experts_per_tok=1,
        head_dim=24,
        intermediate_size_mlp=100,
        interleave_moe_layer_step=2,
    ),
    "deepseek_v2": _of("deepseek_v2", _DEEPSEEK),
    "deepseek_v2, queries at once": _of("deepseek_v2", _DEEPSEEK, q_lora_rank=None),
    "deepseek_v3": _of("deepseek_v3", _DEEPSEEK),
}
_CLASSES = {
    "bert": "AutoModelForMaskedLM",
    "roberta": "AutoModelForMaskedLM",
    "t5": "AutoModelForSeq2SeqLM",
    "vit": "AutoModelForImageClassification",
}
_EAGER_ALONE = {"bloom", "gpt_oss"}


def architecture(name: str) -> Architecture:
    """Return the architecture that we read from the configuration."""
    return read_hf_config(json.dumps(CONFIGS[name])).architecture


def attentions(name: str) -> tuple[str, ...]:
    """Name the kernels that take the family; on the CPU no fused kernel has dropout."""
    if CONFIGS[name]["model_type"] in _EAGER_ALONE or architecture(name).attention_dropout:
        return ("eager",)
    return ("eager", "sdpa")


def variants(name: str) -> list[Architecture]:
    """Describe every layer, in order."""
    described = architecture(name)
    return [unit.variant or described for unit in described.units if unit.kind is UnitKind.LAYER]


@dataclass
class Call:
    """A layer, and what the model calls it with."""

    layer: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    saved_bytes: int = 0

    def tensors(self) -> list[Any]:
        return list(_tensors((self.args, self.kwargs)))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        output = self.layer(*args, **kwargs)
        return output[0] if isinstance(output, tuple) else output

    def fresh(self) -> "Call":
        """Return the call with leaves for inputs, as if the layers before had gone."""
        made = Call(self.layer, _leaves(self.args), _leaves(self.kwargs))
        hidden = made.args[0] if made.args else made.kwargs["hidden_states"]
        hidden.requires_grad_(True)
        return made


def calls(name: str, attention: str, dtype: torch.dtype, microbatch: int) -> list[Call]:
    """Run the whole model forward; return each layer's call, with the bytes that it saved."""
    real = model(name, attention, dtype)
    base: Any = importlib.import_module("transformers.modeling_layers")
    found = [row for row in real.modules() if isinstance(row, base.GradientCheckpointingLayer)]
    made: list[Call] = []
    storages: dict[int, Any] = {}

    def before(layer: Any, args: Any, kwargs: Any) -> None:
        storages.clear()
        made.append(Call(layer, args, kwargs))

    def after(layer: Any, args: Any, kwargs: Any, output: Any) -> None:
        known = {row.untyped_storage()._cdata for row in (*made[-1].tensors(), *layer.parameters())}
        kept = (row.nbytes() for key, row in storages.items() if key not in known)
        made[-1].saved_bytes = sum(kept)

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    for layer in found:
        layer.register_forward_pre_hook(before, with_kwargs=True)
        layer.register_forward_hook(after, with_kwargs=True)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        real(**inputs(name, dtype, microbatch))
    for layer in found:
        layer._forward_hooks.clear()
        layer._forward_pre_hooks.clear()
    return made


def model(name: str, attention: str, dtype: torch.dtype) -> Any:
    """Return a whole real model in training mode."""
    transformers: Any = importlib.import_module("transformers")
    family = CONFIGS[name]["model_type"]
    settings = transformers.AutoConfig.for_model(**CONFIGS[name])
    settings.use_cache = False
    kind = getattr(transformers, _CLASSES.get(family, "AutoModelForCausalLM"))
    made = kind.from_config(settings, dtype=dtype, attn_implementation=attention)
    for parameter in made.parameters():
        # Some modules leave their parameters uninitialised, or in a type of their own.
        parameter.data = parameter.data.to(dtype)
        torch.nn.init.normal_(parameter, std=0.02)
    return made.train()


def inputs(name: str, dtype: torch.dtype, microbatch: int) -> dict[str, Any]:
    """Return random tokens or images, with labels."""
    if CONFIGS[name]["model_type"] == "vit":
        size = CONFIGS[name]["image_size"]
        images = torch.randn(microbatch, 3, size, size, dtype=dtype)
        return {"pixel_values": images, "labels": torch.zeros(microbatch, dtype=torch.long)}
    tokens = torch.randint(0, 100, (microbatch, SEQ))
    if CONFIGS[name]["model_type"] == "t5":
        return {"input_ids": tokens, "labels": torch.randint(0, 100, (microbatch, TARGET_SEQ))}
    return {"input_ids": tokens, "labels": tokens}


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for row in value.values() if isinstance(value, dict) else value:
            yield from _tensors(row)


def _leaves(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        grown = value.is_floating_point() and value.requires_grad
        return value.detach().clone().requires_grad_(grown)
    if isinstance(value, dict):
        return {key: _leaves(row) for key, row in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_leaves(row) for row in value)
    return value
