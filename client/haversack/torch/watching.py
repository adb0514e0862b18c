"""Blocks under watch during one step: where it is, what they draw and change, what they compute.

Puts forwards around those of the blocks and hooks on the tensors between them; the operations
themselves come from the tracker of storages. Knows no figures.
"""

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from haversack.errors import NotSupportedError
from haversack.torch.known import depends_on_data
from haversack.torch.leaves import leaves_of
from haversack.torch.random_operations import draws_random
from haversack.torch.roofline import Roofline, is_view
from haversack.torch.storages import Made, Record

_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an operation's schema says: whether it makes tensors, and which arguments it changes."""

    name: str
    makes: bool
    written: tuple[tuple[int, str], ...]


@functools.cache
def _kind(operation: Any) -> _Kind:
    schema = operation._schema
    written = tuple(
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return _Kind(str(operation), not is_view(operation) and not schema.is_mutable, written)


def written_to(operation: Any, args: Any, kwargs: Any) -> list[Any]:
    """Give those of an operation's arguments that it changes."""
    return [
        args[place] if place < len(args) else kwargs.get(name)
        for place, name in _kind(operation).written
    ]


@dataclass(slots=True)
class Seen:
    """What one block did in a step.

    ``draws_elsewhere``: from Python's, NumPy's or a passed generator, which no checkpoint of
    PyTorch's restores. ``operations`` are those of the forward, in order, ``changed`` those whose
    result another one writes to.
    """

    draws: bool = False
    draws_elsewhere: bool = False
    has_collectives: bool = False
    mutates_inputs: bool = False
    mutated_buffers: tuple[str, ...] = ()
    operations: list[tuple[str, int]] = field(default_factory=list)
    changed: set[tuple[str, int]] = field(default_factory=set)
    recomputed_ns: float = 0.0

    @property
    def savable(self) -> list[tuple[str, int]]:
        """Operations whose result a policy may save: PyTorch refuses what is written to."""
        return [each for each in self.operations if each not in self.changed]

    @property
    def may_recompute(self) -> bool:
        """Whether running it twice computes the same and changes nothing."""
        return not (
            self.draws_elsewhere
            or self.has_collectives
            or self.mutates_inputs
            or self.mutated_buffers
        )


class Watch:
    """Follows the blocks of one step, whose names ``order`` has as they ran.

    Part ``2 j + 1`` is the j-th of them; even parts lie between. Those in ``depending`` asked for
    numbers that the arguments decide. ``draws_between``: from Python's or NumPy's generator outside
    of all blocks, as a model does that chooses which of them run.
    """

    def __init__(self, names: Iterable[str], roofline: Roofline) -> None:
        self.record = Record()
        self.seen = {name: Seen() for name in names}
        self.order: list[str] = []
        self.skipping: dict[str, int] = {}
        self.depending: set[int] = set()
        self.reruns: dict[int, int] = {}
        self.draws_between = False
        self._left_states = _states()
        self._roofline = roofline
        self._running: list[str] = []
        self._counts: Counter[str] = Counter()

    @property
    def parts(self) -> int:
        """How many parts the step had."""
        return 2 * len(self.order) + 1

    def begin(self, model: nn.Module) -> None:
        """Be told of the model whose step begins, its parameters being fake already."""
        self._left_states = _states()

    def ended(self, name: str, given: Any, result: Any) -> None:
        """Be told what a block was given and returned."""

    def saved(self, tensor: torch.Tensor) -> Any:
        """Be told of a tensor that is saved for a backward that will not be; keep nothing."""

    def returned(self, output: Any) -> None:
        """Be told what the model returned, and hear when the first gradient of it is there."""
        self.record.in_model = False

        def arrived(gradient: torch.Tensor) -> None:
            self.record.in_model = True

        for leaf in _hooked(output):
            leaf.register_hook(arrived)

    def skip(self, name: str, size_bytes: int) -> None:
        """Take note of bytes that a block hands to one of its segment that is not the next."""
        self.skipping[name] = self.skipping.get(name, 0) + size_bytes

    def heard(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take note of an operation."""
        kind = _kind(operation)
        if depends_on_data(operation, args):
            self.depending.add(self.record.part)
        if not self.record.in_backward:
            self._note_writing(operation, args, kwargs)
        if not self._running:
            return
        seen = self.seen[self._running[-1]]
        if self.record.in_backward:
            seen.recomputed_ns += self._roofline.ns(operation, args, kwargs, result)
            return
        occurrence = kind.name, self._counts[kind.name]
        seen.operations.append(occurrence)
        self._counts[kind.name] += 1
        if kind.makes:
            for made in self._made(result):
                made.maker = occurrence
        if draws_random(operation, args, kwargs):
            seen.draws = True
            given = any(isinstance(leaf, torch.Generator) for leaf in tree_leaves((args, kwargs)))
            seen.draws_elsewhere |= given
        seen.has_collectives |= operation.namespace in _COLLECTIVES

    def _note_writing(self, operation: Any, args: Any, kwargs: Any) -> None:
        for given in written_to(operation, args, kwargs):
            for made in self._made(given):
                if made.maker is not None:
                    self.seen[self.order[made.part // 2]].changed.add(made.maker)

    def _made(self, value: Any) -> list[Made]:
        found = map(self.record.made_of, leaves_of(value))
        return [made for made in found if made is not None]

    def inside(self, name: str, module: nn.Module) -> Callable[..., Any]:
        """Wrap a forward so that its operations are heard, in forward and in recomputation."""
        forward = module.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.record.in_backward:
                part = 2 * self.order.index(name) + 1
                self.reruns.setdefault(part, len(self.record.events))
                return self._run(name, forward, args, kwargs)
            self._counts.clear()
            before = _versions(args, kwargs), _buffers(module), _states()
            result = self._run(name, forward, args, kwargs)
            seen, buffers = self.seen[name], _buffers(module)
            seen.mutates_inputs |= _versions(args, kwargs) != before[0]
            changed = {path for path in buffers if buffers[path] != before[1].get(path)}
            seen.mutated_buffers = tuple(sorted({*seen.mutated_buffers, *changed}))
            seen.draws_elsewhere |= _states() != before[2]
            return result

        return watched

    def _run(self, name: str, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._running.append(name)
        try:
            return forward(*args, **kwargs)
        finally:
            self._running.pop()

    def around(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a block's call so that parts begin and end with it, in both passes."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            part = self._begin(name)
            self.draws_between |= _states() != self._left_states
            self._note_taking(part, (args, kwargs))
            self._on_gradients((args, kwargs), part - 1)
            result = forward(*args, **kwargs)
            self._left_states = _states()
            self.ended(name, (args, kwargs), result)
            self._on_gradients(result, part)
            self.record.enter(part + 1)
            return result

        return watched

    def _begin(self, name: str) -> int:
        if self.record.in_backward:
            raise NotSupportedError(f"{name} runs in the backward; it cannot be profiled")
        if self.record.part % 2:
            raise NotSupportedError(f"{name} runs inside another block; name one of them")
        if name in self.order:
            raise NotSupportedError(
                f"{name} runs more than once in a forward; a chain has each block once"
            )
        part = 2 * len(self.order) + 1
        self.order.append(name)
        self.record.enter(part)
        return part

    def _note_taking(self, part: int, given: Any) -> None:
        for place, leaf in enumerate(tree_leaves(given)):
            made = self.record.made_of(leaf)
            if made is not None:
                made.takers.append((part, place))

    def _on_gradients(self, value: Any, part: int) -> None:
        for leaf in _hooked(value):
            leaf.register_hook(self._arrival(part))

    def _arrival(self, part: int) -> Callable[[torch.Tensor], None]:
        def arrived(gradient: torch.Tensor) -> None:
            if not self.record.in_backward:
                raise NotSupportedError(
                    "the model runs a backward inside its forward; that cannot be profiled"
                )
            self.record.enter(part)

        return arrived


def _hooked(value: Any) -> list[Any]:
    """Give the tensors whose gradients tell where a backward is.

    A parameter that is handed on lives on after the step, and would keep its hook.
    """
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return [each for each in tensors if each.requires_grad and not isinstance(each, nn.Parameter)]


def _versions(args: Any, kwargs: Any) -> list[tuple[int, int]]:
    """Note what was given, and how often it was written to; also what containers have in them."""
    leaves = tree_leaves((args, kwargs))
    return [(id(leaf), leaf._version) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _buffers(module: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: (id(each), each._version) for name, each in module.named_buffers()}


def _states() -> tuple[Any, ...]:
    numpy: Any = np.random.get_state(legacy=False)
    inner = numpy["state"]
    key = inner["key"].tobytes() if "key" in inner else repr(inner)
    return random.getstate(), key, inner.get("pos"), numpy.get("has_gauss")
