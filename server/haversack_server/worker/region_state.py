"""The probe of state: what a region reads that its replay does not find as its forward did.

Looks at what a region reaches when it is entered and when a replay is left, and says what changed
in between. Looks less far than the snapshot after the step, which decides: not into the functions
and classes of installed packages, and at large tensors by memory and version, not by content; but
also at switches of torch and at environment variables, which any code may read.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from haversack.verify import Facet, StateChange
from haversack_server.verify.comparison import compare_states
from haversack_server.worker import known_tensors, reach
from haversack_server.worker.ownership import is_installed
from haversack_server.worker.reach import Children
from haversack_server.worker.regions import Call
from haversack_server.worker.rng import is_generator
from haversack_server.worker.state import walk
from haversack_server.worker.switches import environment_since, switches
from haversack_server.worker.unwritten import storage_of

MOST_THINGS = 5_000  # at one entry
MOST_OF_A_REGION = 20
MOST_CHANGES = 100


@dataclass(slots=True)
class StateWatch:
    """Looks at what regions reach; ``paths`` are those of modules, by their ids."""

    paths: Mapping[int, str]
    truncated: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    _open: list[tuple[Mapping[str, object], dict[str, str]]] = field(default_factory=list)
    _forward: dict[int, dict[str, str]] = field(default_factory=dict)
    _changes: dict[str, dict[str, tuple[int, StateChange]]] = field(default_factory=dict)
    _memories: dict[int, int] = field(default_factory=dict)

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Look at what an entry begins with."""
        roots = _roots(given)
        found = self._look(roots)
        self._changes.setdefault(call.region, {})
        forward = self._forward.setdefault(id(call), found)
        if forward is not found:
            self._note(call, forward, found, by_replay=False)
        self._open.append((roots, found))

    def left(self, call: Call) -> None:
        """Look at what a replay has changed."""
        roots, before = self._open.pop()
        if call.is_replay:
            self._note(call, before, self._look(roots), by_replay=True)

    def found(self) -> tuple[StateChange, ...]:
        """Give the first changes of every region, each thing once, in the order of the forwards.

        Where there are too many, all regions give up their last ones.
        """
        by_number = [
            sorted(found.values(), key=lambda noted: noted[0]) for found in self._changes.values()
        ]
        regions = [[change for _, change in found] for found in by_number]
        most = MOST_OF_A_REGION
        while most > 1 and sum(len(each[:most]) for each in regions) > MOST_CHANGES:
            most -= 1
        return tuple(change for each in regions for change in each[:most])

    def _note(
        self, call: Call, before: Mapping[str, str], after: Mapping[str, str], *, by_replay: bool
    ) -> None:
        """Note what changed; of a thing that several calls find changed, the earliest call's."""
        changes = self._changes[call.region]
        names, _ = compare_states(Facet.SIDE_EFFECTS, before, before, after)
        for name in names:
            change = StateChange(
                region=call.region,
                name=name,
                by_replay=by_replay,
                before=before.get(name, "nothing"),
                after=after.get(name, "nothing"),
            )
            if name not in changes or call.number < changes[name][0]:
                changes[name] = (call.number, change)

    def _look(self, roots: Mapping[str, object]) -> dict[str, str]:
        records = switches() | environment_since(self.environment)
        # Without modes: a mode of selective checkpointing counts every operation in a region.
        with _disable_current_modes():
            for path, thing, record in walk(roots, look=self._spelled, names=self.paths):
                if record and not is_generator(thing):
                    records[path] = record
                if len(records) >= MOST_THINGS:
                    self.truncated = True
                    break
        return records

    def _spelled(self, thing: Any) -> tuple[str, Children]:
        if isinstance(thing, torch.Tensor):
            return self._tensor(thing), reach.held_by_tensor(thing)
        if isinstance(thing, FunctionType | type) and is_installed(thing.__module__):
            return "", ()
        record, children = reach.look(thing)
        if isinstance(thing, nn.Module):
            buffers = thing._buffers.items()
            children = [*children, *((f".{name}", each) for name, each in buffers)]
        return record, children

    def _tensor(self, tensor: torch.Tensor) -> str:
        """Spell a small tensor by its content, a large one by where it lies and its version."""
        said, is_large = known_tensors.spelled(tensor)
        if not is_large:
            return said
        memory = self._memories.setdefault(storage_of(tensor), len(self._memories) + 1)
        version = known_tensors.version_of(tensor) or 0
        return f"{said} memory {memory} version {version}"


def module_paths(model: Any) -> dict[int, str]:
    """Give the paths of all modules as a snapshot of the model has them, by their ids."""
    if not isinstance(model, nn.Module):
        return {}
    return {id(m): f"model.{path}" if path else "model" for path, m in model.named_modules()}


def _roots(given: Mapping[str, Any]) -> dict[str, object]:
    # PyTorch keeps positional tensors itself, and hooks may bring them back elsewhere.
    args = {
        f"args[{place}]": each
        for place, each in enumerate(given["args"])
        if not isinstance(each, torch.Tensor)
    }
    return {"function": given["function"], **args, "kwargs": given["kwargs"]}
