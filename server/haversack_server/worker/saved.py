"""The probe of values: whether a replay saves for backward what its forward saved, bit for bit.

PyTorch compares metadata of what both save, by a function that a private table holds by name; a
function of ours in that table says the same, and compares digests beside it. Where a version has
no such table there is no probe, and the traced run alone shows values. Keeps digests, no tensors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from haversack.verify import SavedValues
from haversack_server.worker import reach
from haversack_server.worker.regions import DEFAULT_CHECK, Call
from haversack_server.worker.unrepeatable import unheard
from haversack_server.worker.unwritten import Unwritten

_PREFIX = "haversack "
_TABLE = "_allowed_determinism_checks_to_fns"
Check = Callable[[torch.Tensor], Any]


@dataclass(slots=True)
class _Region:
    saved_count: int = 0
    compared_count: int = 0
    different_count: int = 0
    first_different: str = ""


@dataclass(slots=True)
class SavedWatch:
    """Compares what forwards and replays save; one for a process, since it fills a table.

    ``first_different_call`` is the number of the first call whose replay saves other values.
    """

    is_possible: bool = False
    _unwritten: Unwritten = field(default_factory=Unwritten)
    first_different_call: int | None = None
    _open: list[tuple[Call, Any]] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)
    _regions: dict[str, _Region] = field(default_factory=dict)

    def install(self) -> None:
        """Put checks that tell this probe beside those that PyTorch has."""
        table = getattr(torch.utils.checkpoint, _TABLE, None)
        if not isinstance(table, dict) or DEFAULT_CHECK not in table:
            return
        table.update({_PREFIX + name: self._check(own) for name, own in dict(table).items()})
        self.is_possible = True

    def renamed(self, check: str) -> str:
        """Give the name of the check that does what ``check`` does and tells this probe."""
        table = getattr(torch.utils.checkpoint, _TABLE)
        return _PREFIX + check if _PREFIX + check in table else check

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Begin to follow what is written."""
        writing: Any = _Writing(self._unwritten)
        writing.__enter__()
        self._open.append((call, writing))

    def left(self, call: Call) -> None:
        """End it."""
        _, writing = self._open.pop()
        writing.__exit__(None, None, None)

    def found(self) -> tuple[SavedValues, ...]:
        """Say for each region what was saved, and how much of it replays saved again."""
        return tuple(
            SavedValues(
                region=name,
                saved_count=each.saved_count,
                compared_count=each.compared_count,
                different_count=each.different_count,
                first_different=each.first_different,
            )
            for name, each in self._regions.items()
        )

    def compare(self, saved: "_Saved", again: "_Saved") -> None:
        """Take note of a tensor that a replay has saved for one that its forward saved."""
        region = self._regions.setdefault(saved.region, _Region())
        # Content that nothing had written yet is not known, and compares with everything.
        if not (saved.content and again.content):
            return
        region.compared_count += 1
        if saved.content != again.content:
            region.different_count += 1
            known = self.first_different_call
            self.first_different_call = saved.call if known is None else min(known, saved.call)
            region.first_different = region.first_different or f"{saved.place}, {again.about}"

    def _check(self, own: Check) -> Check:
        return lambda tensor: self._saved(tensor, own(tensor))

    def _saved(self, tensor: torch.Tensor, told: Any) -> "_Saved":
        # Without modes: a mode of selective checkpointing counts every operation in a region.
        with _disable_current_modes(), unheard():
            unwritten = self._unwritten.has(tensor)
            about, content = reach.tensor_digest(tensor, skip_content=unwritten, as_it_lies=True)
        if not self._open:
            return _Saved(self, told, about, content)  # a replay's, which has ended
        call = self._open[-1][0]
        self._regions.setdefault(call.region, _Region()).saved_count += not call.in_replay
        place = self._places[id(call)] = self._places.get(id(call), 0) + 1
        name = f"tensor {place} of those saved"
        return _Saved(self, told, about, content, call.region, name, call.number)


@dataclass(slots=True, eq=False, repr=False)
class _Saved:
    """A saved tensor as PyTorch's check sees it, equal to one that the check takes for equal."""

    watch: SavedWatch
    told: Any
    about: str
    content: str
    region: str = ""
    place: str = ""
    call: int = 0

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Saved)
        self.watch.compare(self, other)
        return bool(self.told == other.told)

    def __hash__(self) -> int:
        raise TypeError("a saved tensor has no hash")

    def __repr__(self) -> str:
        return repr(self.told)  # as PyTorch's messages show it


class _Writing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tells which memory operations have written."""

    def __init__(self, unwritten: Unwritten) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._unwritten = unwritten

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._unwritten.note(func, args, kwargs or {}, result)
        return result
