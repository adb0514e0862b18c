"""An accelerator of two devices that is none, for what PyTorch itself does about several.

``torch.utils.checkpoint`` finds devices by the arguments of a region, and reads and sets their
generators through the module of their kind, whichever it is. The chip has that module, and tensors
that lie on it; it computes nothing, and its random numbers go to the CPU at once.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

DEVICES = 2


class Chip:
    """What PyTorch asks of the module of an accelerator."""

    _initialized = True

    def __init__(self) -> None:
        self.generators = [torch.Generator() for _ in range(DEVICES)]
        self.current = 0

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return DEVICES

    def current_device(self) -> int:
        return self.current

    def device(self, index: int) -> "On":
        return On(self, index)

    def manual_seed_all(self, seed: int) -> None:
        for index, generator in enumerate(self.generators):
            generator.manual_seed(seed + index)

    def get_rng_state(self, device: int | None = None) -> Tensor:
        return self.generators[self.current if device is None else device].get_state()

    def set_rng_state(self, state: Tensor, device: int | None = None) -> None:
        self.generators[self.current if device is None else device].set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16]


class On:
    """Makes a device the current one."""

    def __init__(self, chip: Chip, index: int) -> None:
        self.chip, self.index = chip, index
        self.before = chip.current

    def __enter__(self) -> None:
        self.chip.current = self.index

    def __exit__(self, *_: object) -> None:
        self.chip.current = self.before


class Lies(Tensor):
    """A tensor that lies on a device of the chip, with nothing in it."""

    @staticmethod
    def __new__(cls, index: int) -> "Lies":
        make: Any = Tensor._make_wrapper_subclass  # it has no types
        made: Lies = make(cls, (1,), device=torch.device("chip", index))
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, *_: object) -> Any:
        raise NotImplementedError(f"the chip computes nothing, and no {operation}")


class Split(nn.Module):
    """A region that draws on both devices, and is given tensors of some."""

    def __init__(self, given: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.given = given

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self._region, x, *map(Lies, self.given), use_reentrant=False)

    def _region(self, x: Tensor, *_: Tensor) -> Any:
        chip: Any = torch.get_device_module("chip")
        first, second = (torch.rand(64, generator=each) for each in chip.generators)
        return (self.linear(x) * first).sin() * second


def _split(*given: int) -> Workload:
    register: Any = backend_registration._setup_privateuseone_for_python_backend
    register("chip", Chip())
    return Workload(Split(given), (torch.randn(8, 64, requires_grad=True),))


def one_given() -> Workload:
    return _split(0)


def both_given() -> Workload:
    return _split(0, 1)
