"""Models whose steps are profiled and planned, beside those of ``test_profiles``."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from haversack.torch import Workload

VOCABULARY, SEQ = 120, 64


class Convolutions(nn.Module):
    """Two convolutions with a norm between them."""

    def __init__(self, given: int, made: int, norm: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, padding=1)
        self.norm = norm
        self.second = nn.Conv2d(made, made, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(image)))))


class UNet(nn.Module):
    """Three steps down and up; what goes down skips to the way up."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        down = ((3, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 4 * width))
        up = ((8 * width, 2 * width), (4 * width, width), (2 * width, width))
        self.down = nn.ModuleList(Convolutions(*size, nn.GroupNorm(2, size[1])) for size in down)
        self.up = nn.ModuleList(Convolutions(*size, nn.GroupNorm(2, size[1])) for size in up)

    def forward(self, image: Tensor) -> Tensor:
        skips = []
        for block in self.down[:-1]:
            image = block(image)
            skips.append(image)
            image = nn.functional.max_pool2d(image, 2)
        image = self.down[-1](image)
        for block in self.up:
            image = nn.functional.interpolate(image, scale_factor=2)
            image = block(torch.cat([image, skips.pop()], 1))
        return image


class Normed(nn.Module):
    """Blocks with a batch norm, which may not run twice, among others that may."""

    def __init__(self) -> None:
        super().__init__()
        norms = (nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.GroupNorm(2, 8))
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(Convolutions(8, 8, norm) for norm in norms)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        result: Tensor = hidden
        return result


class LowRank(nn.Module):
    """A frozen product and a small one that is trained, as LoRA has them."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Linear(inner.in_features, 4, bias=False)
        self.up = nn.Linear(4, inner.out_features, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.inner(hidden) + self.up(self.down(hidden))
        return result


def _lora() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    model: Any = transformers.LlamaForCausalLM(config).train()
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
        layer.self_attn.v_proj = LowRank(layer.self_attn.v_proj)
    return model


def _t5() -> Any:
    sizes = {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 3, "num_heads": 4}
    tokens = {"vocab_size": VOCABULARY, "decoder_start_token_id": 0, "pad_token_id": 0}
    config: Any = transformers.AutoConfig.for_model("t5", **sizes, **tokens)
    return transformers.T5ForConditionalGeneration(config).train()


def _vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=64,
        patch_size=8,
        hidden_dropout_prob=0.1,
    )
    return transformers.ViTForImageClassification(config).train()


def workload_of(kind: str) -> Workload:
    """Build a model by its kind, with the arguments and the loss of a step."""
    torch.manual_seed(0)
    if kind in ("unet", "normed"):
        image = torch.randn(2, 3, 32, 32)
        model = UNet() if kind == "unet" else Normed()
        return Workload(model, args=(image,), loss=lambda output: output.square().mean())
    if kind == "vit":
        given = {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.tensor([0, 1])}
        return Workload(_vit(), kwargs=given)
    tokens = torch.arange(2 * SEQ).reshape(2, SEQ) % VOCABULARY
    model = _t5() if kind == "t5" else _lora()
    return Workload(model, kwargs={"input_ids": tokens, "labels": tokens})
