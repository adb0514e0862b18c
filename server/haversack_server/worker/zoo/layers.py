"""Common layers and operations as regions, none of which a replay changes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from haversack.torch import Workload
from haversack_server.worker.zoo.case import BATCH, CASES, WIDTH, Regions, workload

Tensor = torch.Tensor
Function = Callable[[Tensor], Any]


def _layer(make: Callable[[], nn.Module]) -> Callable[[], Any]:
    """Run what a layer gives; of a tuple, its first."""

    class Layered(Regions):
        def __init__(self) -> None:
            super().__init__(lambda model, x: _first(model.layer(model.linear(x))).sin())
            self.layer = make()

    return Layered


def _function(function: Function) -> Callable[[], Any]:
    return lambda: Regions(lambda model, x: function(model.linear(x)).sin())


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


class _Shaped(nn.Module):
    """A layer behind a change of shape."""

    def __init__(self, layer: nn.Module, *shape: int) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape

    def forward(self, x: Tensor) -> Any:
        return self.layer(x.reshape(self.shape))


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, need_weights=False)


class _Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class _Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, WIDTH)

    def forward(self, x: Tensor) -> Any:
        return self.embedding(x.argmax(-1) % 4) * x


def _attended(h: Tensor) -> Tensor:
    query = h[None, None]
    return functional.scaled_dot_product_attention(query, query.cos(), query.tanh(), is_causal=True)


def _scattered(h: Tensor) -> Tensor:
    return torch.zeros_like(h).scatter_add(1, h.argsort(-1), h)


def _positions(h: Tensor) -> Tensor:
    angle = torch.arange(BATCH, dtype=h.dtype, device=h.device)[:, None]
    even, odd = h[:, ::2], h[:, 1::2]
    return torch.cat([even * angle.cos() - odd * angle.sin(), even * angle.sin()], -1)


_BLOCK = (WIDTH, 2, 2 * WIDTH)
_BUILDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "attention": ("Multi-head attention", _layer(_Attention)),
    "batched-product": ("A batched matrix product", _function(lambda h: h[None] @ h.T[None])),
    "bilinear": ("A bilinear form", _function(lambda h: torch.einsum("bi,bj->bij", h, h.sin()))),
    "concatenation": ("Pieces, swapped", _function(lambda h: torch.cat(h.chunk(2, -1)[::-1], -1))),
    "convolution-1d": ("A convolution of sequences", _layer(lambda: nn.Conv1d(BATCH, 4, 3))),
    "convolution-2d": (
        "A convolution of images",
        _layer(lambda: _Shaped(nn.Conv2d(3, 4, 2), 1, 3, 2, 3)),
    ),
    "convolution-transposed": (
        "A transposed convolution",
        _layer(lambda: _Shaped(nn.ConvTranspose2d(3, 4, 2), 1, 3, 2, 3)),
    ),
    "cross-entropy": (
        "A cross entropy",
        _function(lambda h: functional.cross_entropy(h, torch.arange(BATCH, device=h.device))),
    ),
    "cumulative-sum": ("A cumulative sum", _function(lambda h: h.cumsum(-1))),
    "encoder-layer": (
        "A transformer's encoder layer with dropout",
        _layer(lambda: nn.TransformerEncoderLayer(*_BLOCK, batch_first=True)),
    ),
    "embedding": ("An embedding", _layer(_Embedded)),
    "fourier": ("A Fourier transform", _function(lambda h: torch.fft.rfft(h).abs())),
    "gather": ("A gather", _function(lambda h: h.gather(1, h.argsort(-1)) * h)),
    "gated": ("A gated feed-forward of SiLU", _layer(_Gated)),
    "gelu": ("GELU", _layer(lambda: nn.GELU())),
    "group-norm": ("GroupNorm", _layer(lambda: nn.GroupNorm(2, WIDTH))),
    "gru": ("A GRU", _layer(lambda: nn.GRU(WIDTH, WIDTH))),
    "index": ("An index of rows", _function(lambda h: h[torch.tensor([2, 0, 0])])),
    "interpolation": (
        "An interpolation",
        _function(lambda h: functional.interpolate(h[None], scale_factor=2, mode="linear")),
    ),
    "layer-norm": ("LayerNorm", _layer(lambda: nn.LayerNorm(WIDTH))),
    "logsumexp": ("A log of sums of exponentials", _function(lambda h: h.logsumexp(-1))),
    "lstm": ("An LSTM", _layer(lambda: nn.LSTM(WIDTH, WIDTH))),
    "max-pool": ("Max pooling", _layer(lambda: nn.MaxPool1d(2))),
    "average-pool": ("Average pooling", _layer(lambda: nn.AvgPool1d(2))),
    "masked": ("A lower triangle before softmax", _function(lambda h: h.tril().softmax(-1))),
    "prelu": ("PReLU", _layer(lambda: nn.PReLU(WIDTH))),
    "rms-norm": ("RMSNorm", _layer(lambda: nn.RMSNorm(WIDTH))),
    "rotation": ("Rotary positions", _function(_positions)),
    "scaled-attention": ("Causal scaled dot product attention", _function(_attended)),
    "scatter": ("A scatter with addition", _function(_scattered)),
    "softmax": ("A softmax", _function(lambda h: h.softmax(-1))),
    "sort": ("A sort", _function(lambda h: h.sort(-1).values)),
    "standard-deviation": ("Standard deviations", _function(lambda h: h.std(-1))),
    "top-k": ("The largest values", _function(lambda h: h.topk(2, -1).values)),
    "where": ("A choice by sign", _function(lambda h: torch.where(h > 0, h.exp(), h.cos()))),
}


def _factory(name: str, about: str, build: Callable[[], Any]) -> Callable[[], Workload]:
    def factory() -> Workload:
        return workload(build())

    factory.__name__, factory.__doc__ = f"layers_{name}".replace("-", "_"), f"{about} as a region."
    return factory


for _name, (_about, _build) in _BUILDS.items():
    CASES[f"layers-{_name}"] = _factory(_name, _about, _build)
