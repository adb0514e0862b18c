"""Records the operations of each region, in forward and in replay.

A traced run explains a difference and never decides one. Its replays run to their end, since what
early stop leaves out cannot be compared. Digests are taken with all modes off, so that a mode of
selective checkpointing does not count them, and never of memory that nothing has written yet.
"""

import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from haversack.verify import FirstDifference
from haversack_server.verify.tracing import Operation, TensorRecord, first_difference
from haversack_server.worker import reach
from haversack_server.worker.regions import Call

# What a replay takes is detached by PyTorch itself, and a detach moves no value.
_SILENT = frozenset({"aten.detach.default", "aten.alias.default"})
_UNWRITTEN = ("aten.empty", "aten.new_empty", "aten.resize_")
_ZOO = "haversack_server.worker.zoo"


@dataclass(slots=True)
class TraceWatch:
    """Records every entry into a region; afterwards finds the first difference."""

    modules: Mapping[int, str]
    tensors: Mapping[int, str]
    _calls: list[tuple[Call, list[list[Operation]]]] = field(default_factory=list)
    _open: list[Any] = field(default_factory=list)

    def entered(self, call: Call) -> None:
        """Begin to record an entry."""
        entries = next((entries for known, entries in self._calls if known is call), None)
        if entries is None:
            entries = []
            self._calls.append((call, entries))
        operations: list[Operation] = []
        entries.append(operations)
        recorder: Any = _Recorder(operations, self.modules, self.tensors)
        self._open.append(recorder)
        recorder.__enter__()

    def left(self, call: Call) -> None:
        """End the record of an entry."""
        self._open.pop().__exit__(None, None, None)

    def first_difference(self) -> FirstDifference | None:
        """Compare every replay with its forward, in the order of the forwards."""
        for call, (forward, *replays) in self._calls:
            for replay in replays:
                found = first_difference(call.region, forward, replay)
                if found is not None:
                    return found
        return None


def tensor_names(model: Any) -> dict[int, str]:
    """Name the storages of a model's parameters and buffers."""
    if not isinstance(model, nn.Module):
        return {}
    parameters = {_storage(p): f"parameter {name}" for name, p in model.named_parameters()}
    return parameters | {_storage(b): f"buffer {name}" for name, b in model.named_buffers()}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(
        self, operations: list[Operation], modules: Mapping[int, str], tensors: Mapping[int, str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations = operations
        self._modules = modules
        self._tensors = tensors
        self._unwritten: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if str(func) in _SILENT:
            return func(*args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        operation = Operation(
            name=str(func),
            given=self._records(leaves),
            arguments=_arguments(leaves),
            is_random=torch.Tag.nondeterministic_seeded in func.tags,
            has_generator=any(isinstance(leaf, torch.Generator) for leaf in leaves),
            **_place(self._modules),
        )
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self._operations.append(replace(operation, raised=_told(error)))
            raise
        made = pytree.tree_leaves(result)
        self._note_writing(func, [*leaves, *made])
        self._operations.append(replace(operation, made=self._records(made)))
        return result

    def _records(self, leaves: Iterable[Any]) -> tuple[TensorRecord, ...]:
        with _disable_current_modes():
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            return tuple(self._record(tensor) for tensor in tensors)

    def _record(self, tensor: torch.Tensor) -> TensorRecord:
        storage = _storage(tensor)
        about, content = reach.tensor_digest(tensor, skip_content=storage in self._unwritten)
        return TensorRecord(about=about, content=content, name=self._tensors.get(storage, ""))

    def _note_writing(self, func: Any, leaves: Iterable[Any]) -> None:
        storages = {_storage(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        if str(func).startswith(_UNWRITTEN):
            self._unwritten |= storages
        elif func._schema.is_mutable:
            self._unwritten -= storages


def _storage(tensor: torch.Tensor) -> int:
    """Identify the memory of a tensor; 0 where it has none of the plain kind."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _arguments(leaves: Iterable[Any]) -> str:
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor | torch.Generator)]
    return f"arguments {others}"


def _told(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"[:300]


def _place(modules: Mapping[int, str]) -> dict[str, Any]:
    """Find the innermost module that runs, and the user's line that it runs for."""
    module, file, line = "", "", 0
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and not (module and file):
        name = frame.f_globals.get("__name__", "")
        if not file and _is_users(name):
            file, line = frame.f_code.co_filename, frame.f_lineno
        if not module:
            module = modules.get(id(frame.f_locals.get("self")), "")
        frame = frame.f_back
    return {"module": module, "file": file, "line": line}


def _is_users(name: str) -> bool:
    top = name.partition(".")[0]
    return name.startswith(_ZOO) or top not in ("torch", "haversack", "haversack_server")
