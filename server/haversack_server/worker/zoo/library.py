"""Models of Hugging Face transformers, tiny, with random weights, checkpointed by the library.

Nothing is downloaded: a configuration is made here, of sizes that its class has names for. Needs
the extra zoo, which is loaded with the first model that is built.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from haversack.torch import Workload
from haversack_server.verify.library import TASKS, in_bfloat16, models

BATCH, TOKENS, VOCABULARY, IMAGE, CLASSES = 2, 8, 64, 32, 3
_WIDTH, _INNER, _HEADS, _LAYERS = 32, 48, 4, 2
# The names that configurations have for their sizes; each takes those that its class knows.
_SIZES: Mapping[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embed_dim"), _WIDTH),
    **dict.fromkeys(("embedding_size", "word_embed_proj_dim", "d_embed"), _WIDTH),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "n_inner", "hidden_dim"), _INNER),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "dff", "moe_intermediate_size"), _INNER),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), _HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), _HEADS),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _LAYERS),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), _LAYERS),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("d_kv", "head_dim", "attention_head_size"), 8),
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "rotary_dim": 4,
    "image_size": IMAGE,
    "patch_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Lossy(nn.Module):
    """Runs a model with the inputs of its task and returns its loss alone."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(inputs)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return the loss of the inputs, in the order of their names."""
        return self.model(**dict(zip(self.names, inputs, strict=True))).loss


def preload() -> None:
    """Load what every model of the library needs, which takes seconds; without it, do nothing."""
    with contextlib.suppress(ImportError):
        importlib.import_module("transformers.modeling_layers")
        importlib.import_module("transformers.models.auto.modeling_auto")


def build(kind: str, task: str, *, bf16: int = 0) -> Workload:
    """Build a model of one kind; with ``bf16`` its weights and images are in bfloat16."""
    transformers: Any = importlib.import_module("transformers")

    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(kind)
    config = transformers.AutoConfig.for_model(kind, **_sizes_of(config, task))
    auto: Any = getattr(transformers, f"AutoModelFor{TASKS[task]}")
    model: Any = auto.from_config(config).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    inputs = _inputs(task)
    if bf16:
        model = model.to(torch.bfloat16)
        inputs = {n: t.bfloat16() if t.is_floating_point() else t for n, t in inputs.items()}
    return Workload(Lossy(model, inputs), tuple(inputs.values()))


def _sizes_of(config: Any, task: str) -> dict[str, Any]:
    """Take the sizes that a configuration has one number for; stages of other widths stay."""
    known = {name: getattr(config, name) for name in _SIZES if hasattr(config, name)}
    single = [name for name, value in known.items() if not isinstance(value, list | tuple)]
    sizes = {name: _SIZES[name] for name in single}
    return sizes | ({"decoder_start_token_id": 1} if task == "translation" else {})


def _inputs(task: str) -> dict[str, torch.Tensor]:
    if task == "image":
        pixels = torch.randn(BATCH, 3, IMAGE, IMAGE)
        return {"pixel_values": pixels, "labels": torch.arange(BATCH) % 2}
    tokens = torch.randint(3, VOCABULARY, (BATCH, TOKENS))
    return {"input_ids": tokens, "labels": tokens.clone()}


def _factory(name: str, kind: str, task: str) -> Callable[..., Workload]:
    def factory(bf16: int = 0) -> Workload:
        return build(kind, task, bf16=bf16)

    return factory if name in in_bfloat16() else lambda: build(kind, task)


FACTORIES = {name: _factory(name, *model) for name, model in models().items()}
