"""Models of many kinds, small enough to be executed hundreds of times: what plans are tried on."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from haversack.run import Optimizer
from haversack.torch import Workload
from haversack.torch.optimizers import with_optimizer

SEQ, VOCABULARY = 64, 128


class Residual(nn.Module):
    """Two convolutions as in ResNet, with the norm that is asked for."""

    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = norm(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.norm(self.first(hidden)))
        return torch.relu(hidden + self.second(inner))


class ResNet(nn.Module):
    """A stem, blocks with pooling after every fourth, and a head."""

    def __init__(self, blocks: int, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.stages = nn.ModuleList(Residual(channels, norm) for _ in range(blocks))
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image)
        for place, block in enumerate(self.stages):
            hidden = block(hidden)
            if place % 8 == 7:
                hidden = nn.functional.max_pool2d(hidden, 2)
        result: Tensor = self.head(hidden.mean((2, 3)))
        return result


class Double(nn.Module):
    """A block of a UNet: from some channels to others."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.norm = nn.GroupNorm(4, after)
        self.second = nn.Conv2d(after, after, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(hidden)))))


class UNet(nn.Module):
    """Three levels down and up again, with skips between them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(map(Double, [3, *sizes[:-1]], sizes))
        self.up = nn.ModuleList(
            Double(a + b, b) for a, b in zip(sizes[:0:-1], sizes[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        skips, hidden = [], image
        for place, block in enumerate(self.down):
            hidden = block(hidden if place == 0 else nn.functional.max_pool2d(hidden, 2))
            skips.append(hidden)
        for block, skip in zip(self.up, skips[-2::-1], strict=True):
            hidden = block(torch.cat([nn.functional.interpolate(hidden, scale_factor=2), skip], 1))
        result: Tensor = self.head(hidden)
        return result


class Low(nn.Module):
    """A frozen linear map with a trained one of low rank beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.frozen(hidden) + self.up(self.down(hidden))
        return result


def _tokens(**more: Any) -> dict[str, Any]:
    given = torch.arange(2 * SEQ).reshape(2, SEQ) % VOCABULARY
    return {"input_ids": given, "labels": given, **more}


def _text(kind: str, auto: str = "AutoModelForCausalLM", **sizes: Any) -> Any:
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, **sizes)
    if getattr(config, "use_cache", False):
        config.use_cache = False
    model: Any = getattr(transformers, auto).from_config(config)
    return model.train()


_SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def _gpt2(layers: int, dropout: float) -> Workload:
    sizes: dict[str, Any] = {
        "n_embd": 64,
        "n_layer": layers,
        "n_head": 4,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    rates: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    model = _text("gpt2", **sizes, **rates)
    model.loss_type = "ForCausalLM"  # taken anyway, but with a warning, which no graph can have
    return Workload(model, kwargs=_tokens())


def _llama(layers: int, **sizes: Any) -> Any:
    return _text("llama", num_hidden_layers=layers, **_SIZES, **sizes)


def _lora() -> Workload:
    model = _llama(6).requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Low(getattr(layer.self_attn, name)))
    model.model.embed_tokens.weight.requires_grad_(True)
    return Workload(model, kwargs=_tokens())


def _t5() -> Workload:
    sizes: dict[str, Any] = {
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 4,
        "num_heads": 4,
    }
    model = _text("t5", "AutoModelForSeq2SeqLM", decoder_start_token_id=0, **sizes)
    return Workload(model, kwargs=_tokens())


def _vit() -> Workload:
    config = transformers.ViTConfig(image_size=32, patch_size=4, num_hidden_layers=6, **_SIZES)
    model: Any = transformers.ViTForImageClassification(config)
    return Workload(
        model.train(),
        kwargs={"pixel_values": torch.randn(4, 3, 32, 32), "labels": torch.arange(4) % 2},
    )


def _image(model: nn.Module, batch: int = 2, side: int = 32) -> Workload:
    images = torch.randn(batch, 3, side, side)
    return Workload(model, args=(images,), loss=lambda output: output.square().mean())


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(4, channels)


MODELS: dict[str, Callable[[], Workload]] = {
    "gpt2 8 layers, dropout": lambda: _gpt2(8, 0.1),
    "gpt2 12 layers, tied": lambda: _gpt2(12, 0.0),
    "llama 8 layers": lambda: Workload(_llama(8), kwargs=_tokens()),
    "llama GQA, untied": lambda: Workload(
        _llama(6, num_key_value_heads=2, tie_word_embeddings=False), kwargs=_tokens()
    ),
    "bert 6 layers, dropout": lambda: Workload(
        _text("bert", "AutoModelForMaskedLM", num_hidden_layers=6, **_SIZES), kwargs=_tokens()
    ),
    "t5, encoder and decoder": _t5,
    "vit 6 layers": _vit,
    "lora on llama": _lora,
    "resnet 16 blocks": lambda: _image(ResNet(16, 8, _group_norm)),
    "resnet, batch norm": lambda: _image(ResNet(8, 8, nn.BatchNorm2d)),
    "unet": lambda: _image(UNet(), side=64),
}


def workload_of(name: str) -> Workload:
    """Build a model anew, always with the same numbers, and an optimizer that keeps no state."""
    torch.manual_seed(0)
    return with_optimizer(MODELS[name](), Optimizer.SGD)
