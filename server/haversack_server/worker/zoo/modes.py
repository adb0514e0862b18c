"""Modes of PyTorch around a region and inside it: which of them a replay restores."""

from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from haversack_server.worker.zoo.case import Regions, region

Tensor = torch.Tensor


class _Autocast(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


class _AutocastTwice(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(super().forward(x).float())


class _AutocastShared(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(self.linear(x).float())


class _NoGradFirst(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                self.linear(x)
            return super().forward(x)


class _Double(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        torch.set_default_dtype(torch.float64)
        try:
            return super().forward(x)
        finally:
            torch.set_default_dtype(torch.float32)


class _Kernel(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return super().forward(x)


class _Device(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.device("cpu"):
            return super().forward(x)


@region(around=_Autocast)
def modes_autocast(model: Any, x: Tensor) -> Any:
    """Autocast around a region, which a replay restores."""
    return model.linear(model.linear(x).sin()).sin()


@region()
def modes_autocast_inside(model: Any, x: Tensor) -> Any:
    """Autocast inside a region."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model.linear(model.linear(x).sin()).sin()


@region(around=_AutocastTwice)
def modes_autocast_two_regions(model: Any, x: Tensor) -> Any:
    """Two regions with one weight under one autocast, whose cache they share."""
    return model.linear(x).sin()


@region(around=_AutocastShared)
def modes_autocast_shared_outside(model: Any, x: Tensor) -> Any:
    """A weight that autocast has cast outside of the region before."""
    return model.linear(x).sin()


@region(around=_Autocast)
def modes_autocast_reused(model: Any, x: Tensor) -> Any:
    """A weight that is used twice inside a region under autocast."""
    return model.linear(x).sin() + model.linear(x.cos())


@region(around=_NoGradFirst)
def modes_autocast_after_no_grad(model: Any, x: Tensor) -> Any:
    """A weight that autocast has cast without gradients before."""
    return model.linear(x).sin()


@region()
def modes_no_grad_inside(model: Any, x: Tensor) -> Any:
    """A part of a region without gradients."""
    with torch.no_grad():
        scale = model.linear(x).abs().mean()
    return (model.linear(x) / scale).sin()


@region(around=_Device)
def modes_device_of_the_forward(model: Any, x: Tensor) -> Any:
    """A default device around a region, which a replay restores."""
    return (model.linear(x) * torch.ones(x.shape)).sin()


@region(around=_Double)
def modes_default_dtype_of_the_forward(model: Any, x: Tensor) -> Any:
    """A default dtype around a region, which a replay does not restore."""
    return (model.linear(x) * torch.full(x.shape, 1.1, device=x.device)).sin()


@region(around=_Kernel)
def modes_attention_kernel_of_the_forward(model: Any, x: Tensor) -> Any:
    """A choice of the attention kernel around a region, which a replay does not restore."""
    query = model.linear(x)[None, None]
    return functional.scaled_dot_product_attention(query, query.sin(), query.cos()).sin()


@region()
def modes_bfloat16_inside(model: Any, x: Tensor) -> Any:
    """Numbers in bfloat16 inside a region."""
    return model.linear(x).bfloat16().sin().float().cos()


@region()
def modes_float64_inside(model: Any, x: Tensor) -> Any:
    """Numbers in float64 inside a region."""
    return model.linear(x).double().sin().float().cos()


@region()
def modes_complex_inside(model: Any, x: Tensor) -> Any:
    """Complex numbers inside a region."""
    return torch.polar(model.linear(x).abs() + 1, x).sin().abs()


@region(debug=True)
def modes_debug(model: Any, x: Tensor) -> Any:
    """The debug mode of checkpoint, whose records would take a program of the system."""
    return model.linear(x).sin()
