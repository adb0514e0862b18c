"""Steps of real optimizers: bytes of their state, and the most that a step takes beside it."""

import importlib
from collections.abc import Mapping
from typing import Any

torch: Any = importlib.import_module("torch")
_modes: Any = importlib.import_module("torch.utils._python_dispatch")
_leaves: Any = importlib.import_module("torch.utils._pytree").tree_leaves
_weak: Any = importlib.import_module("torch.multiprocessing.reductions").StorageWeakRef


class NewStorages(_modes.TorchDispatchMode):  # type: ignore[misc]
    """Sums the storages that operations make and that are alive, and keeps the highest sum."""

    def __init__(self, known: list[Any]) -> None:
        super().__init__()
        self.peak_bytes = 0
        # Held, so that no new storage gets the address of one that the step replaces.
        self._held = [tensor.untyped_storage() for tensor in known]
        self._known = {storage._cdata for storage in self._held}
        self._alive: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, then look at what it made."""
        result = operation(*args, **(kwargs or {}))
        self._alive = {key: row for key, row in self._alive.items() if not row[0].expired()}
        for tensor in _leaves(result):
            if not torch.is_tensor(tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                self._alive.setdefault(storage._cdata, (_weak(storage), storage.nbytes()))
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self._alive.values()))
        return result


def _weights(optimizer: Any) -> list[Any]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _states(optimizer: Any) -> list[Any]:
    """Tensors of its state, counters of steps among them."""
    values = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if torch.is_tensor(value)]


def _step(optimizer: Any) -> int:
    for weight in _weights(optimizer):
        weight.grad = torch.ones_like(weight)
    gradients = [weight.grad for weight in _weights(optimizer)]
    with NewStorages([*_weights(optimizer), *gradients, *_states(optimizer)]) as new:
        optimizer.step()
    return int(new.peak_bytes)


def state_bytes(optimizer: Any) -> int:
    """Step once; give the bytes of the state that is there then, without counters of steps."""
    _step(optimizer)
    return sum(each.numel() * each.element_size() for each in _states(optimizer) if each.dim())


def temporary_bytes(optimizer: Any) -> int:
    """Step twice; give the most that the second step takes beside weights, gradients and state."""
    _step(optimizer)
    return _step(optimizer)
