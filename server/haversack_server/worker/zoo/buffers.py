"""Buffers that a region updates: a replay updates them once more, and may compute with that."""

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

from haversack_server.worker.zoo.case import WIDTH, Regions, region

Tensor = torch.Tensor


class _Buffered(Regions):
    """Regions with a buffer of statistics and one that counts."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


@region(parts=lambda: {"norm": nn.BatchNorm1d(WIDTH)})
def buffers_batch_norm(model: Any, x: Tensor) -> Any:
    """BatchNorm inside a region: its running statistics move twice."""
    return model.norm(model.linear(x)).sin()


@region(parts=lambda: {"norm": nn.BatchNorm1d(WIDTH)})
def buffers_batch_norm_last(model: Any, x: Tensor) -> Any:
    """BatchNorm as the last operation of a region."""
    return model.norm(model.linear(x).sin())


@region(parts=lambda: {"norm": nn.BatchNorm1d(WIDTH, momentum=None)})
def buffers_batch_norm_cumulative(model: Any, x: Tensor) -> Any:
    """BatchNorm with a cumulative average."""
    return model.norm(model.linear(x)).sin()


@region(parts=lambda: {"norm": nn.BatchNorm2d(3)})
def buffers_batch_norm_images(model: Any, x: Tensor) -> Any:
    """BatchNorm of images."""
    return model.norm(model.linear(x).view(1, 3, 2, 3)).sin()


@region(parts=lambda: {"norm": nn.InstanceNorm1d(3, track_running_stats=True)})
def buffers_instance_norm(model: Any, x: Tensor) -> Any:
    """InstanceNorm that tracks its statistics."""
    return model.norm(model.linear(x)[None]).sin()


@region(parts=lambda: {"norm": nn.BatchNorm1d(WIDTH).eval()})
def buffers_batch_norm_frozen(model: Any, x: Tensor) -> Any:
    """BatchNorm in evaluation mode, which updates nothing."""
    return model.norm(model.linear(x)).sin()


@region(parts=lambda: {"norm": nn.BatchNorm1d(WIDTH, track_running_stats=False)})
def buffers_batch_norm_untracked(model: Any, x: Tensor) -> Any:
    """BatchNorm without running statistics."""
    return model.norm(model.linear(x)).sin()


@region(around=_Buffered)
def buffers_counter(model: Any, x: Tensor) -> Any:
    """A buffer that counts calls and is used for nothing."""
    model.count.add_(1)
    return model.linear(x).sin()


@region(around=_Buffered)
def buffers_expert_tokens(model: Any, x: Tensor) -> Any:
    """Tokens per expert, counted in a buffer as routers do."""
    h = model.linear(x)
    model.mean.index_add_(0, h.argmax(-1), torch.ones(len(h), device=x.device))
    return h.sin()


@region(around=_Buffered)
def buffers_read_only(model: Any, x: Tensor) -> Any:
    """A buffer that is only read."""
    return (model.linear(x) + model.mean).sin()


@region(around=_Buffered)
def buffers_moving_average(model: Any, x: Tensor) -> Any:
    """A moving average that is updated and used: the replay computes with another one."""
    h = model.linear(x)
    model.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    return (h * model.mean.clone()).sin()


@region(around=_Buffered)
def buffers_count_in_math(model: Any, x: Tensor) -> Any:
    """A count of calls, kept in a buffer, as a factor."""
    model.count.add_(1)
    return (model.linear(x) * model.count.to(x.dtype)).sin()


@region(parts=lambda: {"codes": nn.Buffer(torch.randn(4, WIDTH))})
def buffers_codebook(model: Any, x: Tensor) -> Any:
    """A codebook of vector quantisation that follows what it encodes."""
    h = model.linear(x)
    picked = torch.cdist(h.detach(), model.codes).argmin(-1)
    model.codes[picked] = 0.9 * model.codes[picked] + 0.1 * h.detach()
    return (h * model.codes[picked]).sin()


def _spectral() -> dict[str, Any]:
    # Singular values that are close: fifteen steps at its making leave the iteration unfinished.
    linear = nn.Linear(WIDTH, WIDTH)
    linear.weight.data = torch.diag(torch.linspace(1, 0.9, WIDTH))
    return {"norm": parametrizations.spectral_norm(linear)}


@region(parts=_spectral)
def buffers_spectral_norm(model: Any, x: Tensor) -> Any:
    """Spectral norm: its power iteration takes another step in the replay."""
    return model.norm(model.linear(x)).sin()


@region(parts=lambda: {"norm": parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))})
def buffers_weight_norm(model: Any, x: Tensor) -> Any:
    """Weight norm, which keeps no state."""
    return model.norm(model.linear(x)).sin()


@region(around=_Buffered)
def buffers_fake_quant(model: Any, x: Tensor) -> Any:
    """Fake quantisation with a scale that follows its input."""
    h = model.linear(x)
    model.mean.mul_(0.5).add_(h.detach().abs().amax(0), alpha=0.5)
    scale = model.mean.clone() / 7
    return (h + ((h / scale).round() * scale - h).detach()).square()


@region(parts=lambda: {"history": nn.Buffer(torch.ones(4))})
def buffers_amax_history(model: Any, x: Tensor) -> Any:
    """Delayed scaling of FP8: the scale comes from a history that each call shifts."""
    h = model.linear(x)
    scale = model.history.max().clone()
    model.history.copy_(model.history.roll(1))
    model.history[0] = 3 * h.detach().abs().max()
    return (h / scale).sin()


@region(parts=lambda: {"teacher": nn.Linear(WIDTH, WIDTH).requires_grad_(False)})
def buffers_frozen_parameter(model: Any, x: Tensor) -> Any:
    """Weights of a teacher that ask for no gradient and follow the student's with every call."""
    model.teacher.weight.lerp_(model.linear.weight.detach(), 0.5)
    return model.linear(x).sin()


@region(parts=lambda: {"shift": nn.Parameter(torch.ones(WIDTH))})
def buffers_trained_weight(model: Any, x: Tensor) -> Any:
    """A trained weight that each call decays by itself."""
    with torch.no_grad():
        model.shift.mul_(0.9)
    return model.linear(x).sin() + model.shift
