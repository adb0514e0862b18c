"""Records the operations of each region, in forward and in replay.

A traced run explains a difference; all that it decides is that one is no rounding. Replays that it
records run to their end, since what early stop leaves out cannot be compared. Digests are taken
with all modes off, so that a mode of selective checkpointing does not count them, and never of
memory that nothing has written yet.
"""

import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from haversack.verify import FirstDifference
from haversack_server.verify.tracing import Operation, TensorRecord, first_difference
from haversack_server.worker import reach
from haversack_server.worker.errors import StepEnded, text_of
from haversack_server.worker.ownership import is_users
from haversack_server.worker.regions import Call
from haversack_server.worker.unwritten import Unwritten, storage_of

# What a replay takes is detached by PyTorch itself, and a detach moves no value.
_SILENT = frozenset({"aten.detach.default", "aten.alias.default"})
_DISTRIBUTED = "torch.distributed."


@dataclass(slots=True)
class TraceWatch:
    """Records every entry into a region; afterwards finds the first difference.

    ``last_call`` is the number of the last call that is recorded: where a call is known whose
    replay differs, none after it can be the first. None records all. The step ends with a replay of
    that call that differs: backward comes to calls before it later, where it comes to them at all.
    """

    modules: Mapping[int, str]
    tensors: Mapping[int, str]
    last_call: int | None = None
    _calls: list[tuple[Call, list[list[Operation]]]] = field(default_factory=list)
    _open: list["_Recorder"] = field(default_factory=list)

    def records(self, call: Call) -> bool:
        """Whether it records a call."""
        return self.last_call is None or call.number <= self.last_call

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Begin to record an entry; what a backward inside a region replays is none of its own."""
        self._pause(call, 1)
        if not self.records(call):
            return
        entries = next((entries for known, entries in self._calls if known is call), None)
        if entries is None:
            entries = []
            self._calls.append((call, entries))
        operations: list[Operation] = []
        entries.append(operations)
        recorder = _Recorder(operations, self.modules, self.tensors)
        self._open.append(recorder)
        recorder.__enter__()  # type: ignore[no-untyped-call]

    def left(self, call: Call) -> None:
        """End the record of an entry."""
        if self.records(call):
            self._open.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._pause(call, -1)
        # A forward that is still open can be compared with nothing yet.
        is_last = call.number == self.last_call and call.entry > 1 and not self._open
        if is_last and self.first_difference():
            raise StepEnded

    def _pause(self, call: Call, count: int) -> None:
        if call.entry > 1:
            for recorder in self._open:
                recorder.pauses += count

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
    parameters = {storage_of(p): f"parameter {name}" for name, p in model.named_parameters()}
    return parameters | {storage_of(b): f"buffer {name}" for name, b in model.named_buffers()}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records one entry; ``pauses`` counts the replays that it is open around."""

    def __init__(
        self, operations: list[Operation], modules: Mapping[int, str], tensors: Mapping[int, str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pauses = 0
        self._operations = operations
        self._modules = modules
        self._tensors = tensors
        self._unwritten = Unwritten()
        self._known: dict[int, _Known] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.pauses or str(func) in _SILENT or _is_of_sharding():
            return func(*args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        operation = Operation(
            name=str(func),
            given=self._given(leaves),
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
        self._unwritten.note(func, args, kwargs, result)
        self._operations.append(replace(operation, made=self._made(func, made)))
        return result

    def _given(self, leaves: Iterable[Any]) -> tuple[TensorRecord, ...]:
        """Look at what an operation takes, unless it follows from what this entry has looked at."""
        with _disable_current_modes():
            return tuple(self._record(t, skip=self._is_known(t)) for t in _tensors(leaves))

    def _made(self, func: Any, leaves: Iterable[Any]) -> tuple[TensorRecord, ...]:
        """Look at what an operation gives; what a view has follows from what it is a view of."""
        with _disable_current_modes():
            return tuple(self._record(t, skip=_is_view(func)) for t in _tensors(leaves))

    def _record(self, tensor: torch.Tensor, *, skip: bool) -> TensorRecord:
        is_unwritten = self._unwritten.has(tensor)
        about, content = reach.tensor_digest(
            tensor, skip_content=skip or is_unwritten, as_it_lies=True
        )
        if not skip:
            self._note_known(tensor, about, content)
        elif not is_unwritten:
            content = self._known_content(tensor, about)
        name = self._tensors.get(storage_of(tensor), "")
        return TensorRecord(about=about, content=content, name=name, is_unwritten=is_unwritten)

    def _note_known(self, tensor: torch.Tensor, about: str, content: str) -> None:
        """Take a whole storage for known: what becomes of it in this entry is looked at too."""
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if tensor.numel() * tensor.element_size() == storage.nbytes():
                looked_at = (_version(tensor), about, content)
                self._known[id(storage)] = _Known(weakref.ref(storage), *looked_at)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided:
            return False
        storage = tensor.untyped_storage()
        known = self._known.get(id(storage))
        # What cannot be resized lies in memory of another library, which may write it unseen:
        # ``numpy()`` makes it so.
        return known is not None and known.storage() is storage and storage.resizable()

    def _known_content(self, tensor: torch.Tensor, about: str) -> str:
        """Give the digest that a known tensor had, if nothing was written since; else none."""
        known = self._known[id(tensor.untyped_storage())] if self._is_known(tensor) else None
        is_same = known is not None and (known.version, known.about) == (_version(tensor), about)
        return known.content if known is not None and is_same else ""


class _Known(NamedTuple):
    storage: "weakref.ref[torch.UntypedStorage]"
    version: int
    about: str
    content: str


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _tensors(leaves: Iterable[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_view(operation: Any) -> bool:
    aliases = [each.alias_info for each in operation._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _arguments(leaves: Iterable[Any]) -> str:
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor | torch.Generator)]
    # A storage spells its numbers, which nothing may have written yet.
    told = [each.nbytes() if isinstance(each, torch.UntypedStorage) else each for each in others]
    return f"arguments {told}"


def _told(error: Exception) -> str:
    first_line = text_of(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"[:300]


def _is_of_sharding() -> bool:
    """Whether PyTorch gathers or divides parameters here, which a replay may find done already."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_DISTRIBUTED):
            return True
        if not name.startswith("torch."):
            return False
        frame = frame.f_back
    return False


def _place(modules: Mapping[int, str]) -> dict[str, Any]:
    """Find the innermost module that runs, and the user's line that it runs for.

    Where none runs, as in the replay of a function, it is a module that a function is given first.
    """
    module, given, file, line = "", "", "", 0
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and not (module and file):
        name = frame.f_globals.get("__name__", "")
        if not file and is_users(name):
            file, line = frame.f_code.co_filename, frame.f_lineno
        if not module:
            held = frame.f_locals
            module = modules.get(id(held.get("self")), "")
            if not given and frame.f_code.co_argcount:
                given = modules.get(id(held.get(frame.f_code.co_varnames[0])), "")
        frame = frame.f_back
    return {"module": module or given, "file": file, "line": line}
