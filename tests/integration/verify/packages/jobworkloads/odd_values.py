"""Workloads whose values are of odd classes, layouts or types, or vast as arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.masked import masked_tensor
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

WIDTH = 6
VAST = 150_000  # squared, more than a job may have


class Tagged(Tensor):
    """Has memory of its own, and a class that nobody else knows."""


class Closed(Tensor):
    """Has no memory, and says nowhere what it holds."""

    @staticmethod
    def __new__(cls) -> Any:
        return Tensor._make_wrapper_subclass(cls, (3,))

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Config(NamedTuple):
    """A configuration that takes no value."""

    use_cache: bool = True


class Net(nn.Module):
    """Runs a linear layer and a sine as a region; gives what ``given`` makes of that."""

    def __init__(self, given: Callable[[Tensor], Any] = lambda y: y, **buffers: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.given = given
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Any:
        return self.given(checkpoint(self._region, x, use_reentrant=False))

    def _region(self, x: Tensor) -> Tensor:
        sine: Tensor = self.linear(x).sin()
        return sine


def workload(model: nn.Module, x: Tensor | None = None) -> Workload:
    return Workload(
        model,
        (torch.randn(3, WIDTH, requires_grad=True) if x is None else x,),
        loss=lambda output: (output if isinstance(output, Tensor) else output[0]).sum(),
    )


def views_as_two_types() -> Workload:
    cosines = torch.ones(2, 2, dtype=torch.complex64)
    packed = torch.zeros(16, dtype=torch.uint8)
    buffers = {"packed": packed, "view": packed.view(torch.int32), "real": cosines.real}
    return workload(Net(lambda y: [y, y.view(torch.int32)], cosines=cosines, **buffers))


def of_a_class_of_its_own() -> Workload:
    model = Net(lambda y: y.as_subclass(Tagged), scale=torch.ones(2).as_subclass(Tagged))
    return workload(model, torch.randn(3, WIDTH).as_subclass(Tagged).requires_grad_())


def masked() -> Workload:
    return workload(Net(lambda y: [y, masked_tensor(y.detach(), y.detach() > 0)]))


def closed() -> Workload:
    return workload(Net(lambda y: [y, Closed()]))


def opaque() -> Workload:
    return workload(Net(lambda y: [y, y.detach().to_mkldnn()], kept=torch.ones(2).to_mkldnn()))


def less_than_a_byte() -> Workload:
    held = torch.zeros(WIDTH, dtype=torch.uint8)
    return workload(Net(quarter=held.view(torch.float4_e2m1fn_x2), bits=held.view(torch.bits8)))


def vast_as_arrays() -> Workload:
    places = torch.arange(VAST).repeat(2, 1)
    adjacency = torch.sparse_coo_tensor(places, torch.ones(VAST), (VAST, VAST))
    mask = torch.zeros(1, 1, dtype=torch.bool).expand(VAST, VAST)
    return workload(Net(adjacency=adjacency, mask=mask))


def writes_a_vast_one() -> Workload:
    """Change one value of a sparse matrix in each run of the region."""

    class Writing(Net):
        adjacency: Tensor

        def _region(self, x: Tensor) -> Tensor:
            self.adjacency._values()[-1] += 1
            return super()._region(x)

    places = torch.arange(VAST).repeat(2, 1)
    adjacency = torch.sparse_coo_tensor(places, torch.ones(VAST), (VAST, VAST)).coalesce()
    return workload(Writing(adjacency=adjacency))


def resists() -> Workload:
    """Clear gradients by a function of another signature, with a configuration that is fixed."""

    class Resisting(Net):
        config = Config()

        def zero_grad(self) -> None:  # type: ignore[override]
            for parameter in self.parameters():
                parameter.grad = None

    return workload(Resisting())


def puts_hooks_on_again() -> Workload:
    """Put a hook on in each region, and another in each step, as probes of libraries do."""

    class Hooked(Net):
        handle: Any = None

        def forward(self, x: Tensor) -> Any:
            if self.handle is not None:
                self.handle.remove()
            self.handle = self.linear.register_forward_hook(_do_nothing)
            return super().forward(x)

        def _region(self, x: Tensor) -> Tensor:
            handle = self.linear.register_forward_hook(_do_nothing)
            try:
                return super()._region(x)
            finally:
                handle.remove()

    return workload(Hooked())


def _do_nothing(*args: object) -> None:
    pass
