"""What each part of a forward does, as text: operations with shapes, strides, types and aliasing.

Two parts with the same text compute the same on tensors of the same layout, wherever they stand in
the model. Storages are numbered in the order in which a part meets them, so aliasing shows.
Values are no part of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from haversack.torch.blocks import digest
from haversack.torch.leaves import leaves_of
from haversack.torch.results import Result, Results
from haversack.torch.roofline import Roofline
from haversack.torch.storages import Made, Record
from haversack.torch.stubs import Stub, stub_of
from haversack.torch.watching import Watch

_NEAR = 2  # parts back: the block before, and what lies between


@dataclass(slots=True)
class Span:
    """A tensor that a later part reads past its neighbours: from its making to its last reading."""

    made_in: int
    read_in: int


@dataclass(slots=True)
class _Part:
    rows: list[str] = field(default_factory=list)
    storages: dict[int, int] = field(default_factory=dict)


class Traces:
    """Listens to a forward. ``shared`` are parameters that more than one block has."""

    def __init__(self, record: Record, shared: Iterable[torch.Tensor]) -> None:
        self._record = record
        self._shared = {each.untyped_storage()._cdata: i for i, each in enumerate(shared)}
        self._parts: dict[int, _Part] = {}
        self._spans: dict[int, Span] = {}
        self._lingering: dict[int, list[Made]] = {}

    def began(self, part: int) -> None:
        """Note what variables of the model's own code hold while a part begins, from far back."""
        alive = [made for _, made in self._record.known.values()]
        self._lingering[part] = [made for made in alive if made.part < part - _NEAR]

    def heard(self, operation: Any, given: Any, result: Any) -> None:
        """Write an operation down."""
        part = self._parts.setdefault(self._record.part, _Part())
        leaves = [self._leaf(part, leaf) for leaf in leaves_of((given, result))]
        grad = "" if torch.is_grad_enabled() else " no_grad"
        part.rows.append(f"{operation}{grad} {' '.join(leaves)}")

    def _leaf(self, part: _Part, leaf: Any) -> str:
        if not isinstance(leaf, torch.Tensor):
            plain = isinstance(leaf, int | float | str | bool | torch.dtype | torch.device | None)
            return repr(leaf) if plain else type(leaf).__name__
        if leaf.layout is not torch.strided:
            return f"{leaf.layout}{tuple(leaf.shape)}"
        which = self._which(part, leaf)
        layout = f"{tuple(leaf.shape)}{leaf.stride()}{leaf.storage_offset()}"
        return f"{which}{layout}{leaf.dtype}{leaf.requires_grad}"

    def _which(self, part: _Part, leaf: torch.Tensor) -> str:
        made = self._record.made_of(leaf)
        key = leaf.untyped_storage()._cdata if made is None else id(made)
        if key in part.storages:
            return f"#{part.storages[key]}"
        place = part.storages[key] = len(part.storages)
        here = self._record.part
        if made is None:
            if key not in self._shared:
                return f"#{place} set"
            # Its gradient is added up from its last reading to its first.
            self._spans.setdefault(key, Span(here, here)).read_in = here
            return f"#{place} shared {self._shared[key]}"
        if here - made.part > _NEAR:
            self._spans.setdefault(key, Span(made.part, here)).read_in = here
        return f"#{place} from {min(here - made.part, _NEAR + 1)}"

    def keys(self, parts: int) -> list[str]:
        """Name each part by what it does, and by the tensors that skip over it or begin at it."""
        return [self._key(part) for part in range(parts)]

    def _key(self, part: int) -> str:
        over = [
            place
            for place, span in enumerate(self._spans.values())
            if span.made_in < part < span.read_in
        ]
        begin = sum(span.made_in == part for span in self._spans.values())
        held = sorted(
            made.size_bytes for made in self._lingering.get(part, ()) if not made.outlives
        )
        found = self._parts.get(part, _Part())
        return digest([*found.rows, f"under {over}", f"begins {begin}", f"beside {held}"])


class TracingWatch(Watch):
    """Watches a forward of which it learns what each part does, and what each block returns."""

    def __init__(self, names: Iterable[str], roofline: Roofline) -> None:
        super().__init__(names, roofline)
        self.traces = Traces(self.record, ())
        self.results = Results(self.record)
        self.stubs: dict[str, Stub | None] = {}

    def begin(self, model: nn.Module) -> None:
        """Note which parameters the blocks share."""
        super().begin(model)
        blocks = [model.get_submodule(name) for name in self.seen]
        self.traces = Traces(self.record, shared_parameters(model, blocks))

    def heard(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take note of an operation, and write it down."""
        super().heard(operation, args, kwargs, result)
        self.traces.heard(operation, (args, kwargs), result)
        if self._running:
            block = self._running[-1]
            time_ns = self._roofline.ns(operation, args, kwargs, result)
            occurrence = self.seen[block].operations[-1]
            self.results.heard(block, occurrence, time_ns, (operation, args, kwargs), result)

    def saved(self, tensor: torch.Tensor) -> None:
        """Note what a block's backward needs."""
        if self._running:
            self.results.saved(self._running[-1], tensor)

    def results_of(self, name: str) -> list[Result]:
        """Give the results of a block, once the forward has run."""
        found = self.results.of_block.get(name, [])
        for result in found:  # a later block may have written to them
            result.is_fixed |= result.occurrence in self.seen[name].changed
        return found

    def _begin(self, name: str) -> int:
        part = super()._begin(name)
        self.traces.began(part)
        return part

    def ended(self, name: str, given: Any, result: Any) -> None:
        """Learn to stand in for a block, and what others keep of it."""
        self.results.returned(name, result)
        self.stubs[name] = stub_of(self.record, given, result)


def shared_parameters(model: nn.Module, blocks: Iterable[nn.Module]) -> list[torch.Tensor]:
    """Find the parameters that are in more than one block, or in a block and outside of it."""
    places: dict[int, set[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    inside = {id(module): str(i) for i, block in enumerate(blocks) for module in block.modules()}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                tensors[id(parameter)] = parameter
                places.setdefault(id(parameter), set()).add(inside.get(id(module), ""))
    return [tensors[key] for key, found in places.items() if len(found) > 1]
