"""Tiny models of the supported families, as configurations and as real modules on the CPU.

Sizes are chosen such that no activation of 53 tokens has the shape of a parameter.
"""

import importlib
import json
from typing import Any

import torch

from haversack_server.memory.architecture import Architecture
from haversack_server.memory.hf_config import read_hf_config

SEQ = 53
_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 176,
    "vocab_size": 100,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _SIZES | {"model_type": "llama"},
    "llama, as many key heads": _SIZES | {"model_type": "llama", "num_key_value_heads": 4},
    "llama with biases": _SIZES | {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral": _SIZES | {"model_type": "mistral"},
    "mistral with dropout": _SIZES | {"model_type": "mistral", "attention_dropout": 0.1},
    "qwen2": _SIZES | {"model_type": "qwen2"},
    "qwen3": _SIZES | {"model_type": "qwen3", "head_dim": 24},
    "gemma2": _SIZES | {"model_type": "gemma2", "head_dim": 24},
    "mixtral": _SIZES | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "vocab_size": 100,
        "n_positions": 61,
        "attn_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
}
CONFIGS["gpt2 with dropout"] = CONFIGS["gpt2"] | {"attn_pdrop": 0.1}
_LAYERS = {
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "gpt2": "GPT2Block",
}


def architecture(name: str, **changes: Any) -> Architecture:
    """Return the architecture that we read from the configuration."""
    return read_hf_config(json.dumps(CONFIGS[name] | changes)).architecture


def config(name: str, attention: str, **changes: Any) -> Any:
    """Return the configuration object of transformers."""
    transformers: Any = importlib.import_module("transformers")
    result = transformers.AutoConfig.for_model(**(CONFIGS[name] | changes))
    result._attn_implementation = attention
    if CONFIGS[name]["model_type"] == "mixtral":
        result._experts_implementation = "grouped_mm"  # a whole model sets its default itself
    result.use_cache = False
    return result


def layer(name: str, attention: str, dtype: torch.dtype) -> torch.nn.Module:
    """Return one real layer in training mode."""
    family = CONFIGS[name]["model_type"]
    module: Any = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    made: torch.nn.Module = getattr(module, _LAYERS[family])(config(name, attention), 0)
    return _ready(made.to(dtype))


def causal_lm(name: str, attention: str, dtype: torch.dtype, **changes: Any) -> torch.nn.Module:
    """Return a whole real model in training mode."""
    transformers: Any = importlib.import_module("transformers")
    settings = config(name, attention, **changes)
    made: torch.nn.Module = transformers.AutoModelForCausalLM.from_config(settings, dtype=dtype)
    return _ready(made)


def checkpoint_layers(model: Any) -> None:
    """Let the model checkpoint its layers, without re-entrant backward."""
    newer = getattr(model, "activation_checkpointing_enable", None)  # the name since 5.x
    (newer or model.gradient_checkpointing_enable)({"use_reentrant": False})


def _ready(module: torch.nn.Module) -> torch.nn.Module:
    # Some modules leave their parameters uninitialised; not-a-number would not route to experts.
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return module.train()
