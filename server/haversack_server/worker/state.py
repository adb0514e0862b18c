"""Python state that a workload reaches: what a region may change beside tensors and gradients.

Walks what ``reach`` names. Buffers, frozen parameters, trained ones that the step has written, and
default generators are other facets.
Digests are taken outside the step, so no probe runs inside a region.
"""

import collections
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, TypeGuard

import torch

from haversack_server.worker.reach import SCALARS, Children, Look, held_with_hooks, look, spelled
from haversack_server.worker.rng import held_state, is_generator

MOST_THINGS = 200_000
_NO_NAMES: Mapping[int, str] = MappingProxyType({})


@dataclass(slots=True)
class Snapshot:
    """What was reached: a digest of each thing and of each generator, by its path.

    ``own_changes`` has what was told of things that it was told of, ``with_gradient`` the tensors
    that have a gradient, and ``weights`` the path of each that gradients are stored for, and what
    the steps themselves left in it, by its id: several may have one path.
    """

    values: dict[str, str] = field(default_factory=dict)
    generators: dict[str, str] = field(default_factory=dict)
    own_changes: dict[str, str] = field(default_factory=dict)
    with_gradient: dict[str, torch.Tensor] = field(default_factory=dict)
    weights: dict[int, tuple[str, str]] = field(default_factory=dict)
    truncated: bool = False

    def take(self, tensor: torch.Tensor) -> None:
        """Leave a weight out, whose content is compared elsewhere."""
        path, _ = self.weights.get(id(tensor), ("", ""))
        self.values.pop(path, None)
        self.own_changes.pop(path, None)

    def left_by_steps(self, tensor: torch.Tensor) -> str | None:
        """Spell what the steps themselves left in a weight; None for one that is not reached."""
        _, said = self.weights.get(id(tensor), ("", None))
        return said


def snapshot(
    *roots: Mapping[str, object],
    most_things: int = MOST_THINGS,
    elsewhere: Collection[int] = frozenset(),
    own_changes: Mapping[int, str] = _NO_NAMES,
) -> Snapshot:
    """Digest everything that the roots reach, each thing under the first path that reaches it.

    Later roots name only what earlier ones do not reach. ``elsewhere`` are the ids of tensors whose
    content another facet compares: of those, attributes alone count. ``own_changes`` says of
    things, by their ids, what is kept beside their digests.
    """
    found = Snapshot()
    for path, thing, record in walk(*roots, look=partial(_looked_at, elsewhere)):
        state = held_state(thing)
        if state is not None:
            found.generators[path] = state
        elif record:
            found.values[path] = record
            if id(thing) in own_changes:
                found.own_changes[path] = own_changes[id(thing)]
            if is_weight(thing):
                found.weights[id(thing)] = path, own_changes.get(id(thing), record)
        if _has_gradient(thing):
            found.with_gradient[path] = thing
        if len(found.values) >= most_things:
            found.truncated = True
            break
    return found


def _looked_at(elsewhere: Collection[int], thing: Any) -> tuple[str, Children]:
    return ("", held_with_hooks(thing)) if id(thing) in elsewhere else look(thing)


def walk(
    *roots: Mapping[str, object], look: Look = look, names: Mapping[int, str] = _NO_NAMES
) -> Iterator[tuple[str, Any, str]]:
    """Give path, thing and digest of everything that the roots reach, the nearest first.

    ``look`` spells one thing, and names what it reaches; ``names`` are paths that things have
    whatever reaches them, by their ids.
    """
    seen: dict[int, object] = {}  # keeps what it saw alive, so that no id comes twice
    for each in roots:
        yield from _walk(each, look, names, seen)


def _walk(
    roots: Mapping[str, object], look: Look, names: Mapping[int, str], seen: dict[int, object]
) -> Iterator[tuple[str, Any, str]]:
    pending: collections.deque[tuple[str, Any]] = collections.deque(roots.items())
    while pending:
        path, thing = pending.popleft()
        if not _answers(thing):
            yield path, None, f"{type(thing).__name__} of nothing"
        elif isinstance(thing, SCALARS):
            yield path, thing, spelled(thing)
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            if is_generator(thing):
                yield path, thing, ""
                continue
            path = names.get(id(thing), path)
            record, children = look(thing)
            yield path, thing, record
            pending.extend((_join(path, label), child) for label, child in children)


def is_weight(thing: Any) -> TypeGuard[torch.Tensor]:
    """Whether a thing is a tensor that gradients are stored for."""
    return isinstance(thing, torch.Tensor) and thing.requires_grad and thing.is_leaf


def _has_gradient(thing: Any) -> bool:
    is_stored = isinstance(thing, torch.Tensor) and (thing.is_leaf or thing.retains_grad)
    return is_stored and thing.grad is not None


def _answers(thing: Any) -> bool:
    """Whether a thing can be asked what it is: a weak proxy of what is gone can not."""
    try:
        return bool(thing.__class__) or True
    except Exception:  # of the user's object, which may raise whatever it is asked
        return False


def _join(path: str, label: str) -> str:
    # A label that is no attribute and no index is a path of its own: a global, a class attribute.
    return f"{path}{label}" if label[0] in ".[" else label
