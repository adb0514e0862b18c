"""One pass through a segment: its calls, what autograd saved in them, and how they run again.

An argument that a call of the segment has made is not kept, it is made again; any other is kept, so
that what runs between the blocks may be anything. In a nest that runs again some calls are saved;
the others are in nests of their own, of which the arguments wait, and which run again when backward
comes to them. Knows no modules.
"""

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from haversack.errors import NotSupportedError
from haversack.torch.surroundings import Surroundings

Nest: TypeAlias = tuple["int | Nest", ...]
"""Calls in their order: a number is one that is saved, a nest runs again by itself."""


@dataclass(frozen=True, slots=True)
class Made:
    """An argument that a call of the segment has made: which one, and which of its results."""

    call: int
    leaf: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tensor from outside, and its version, by which a later change of it is seen."""

    tensor: torch.Tensor
    version: int


@dataclass(slots=True)
class Call:
    """A block's forward, its arguments, and what surrounded it.

    ``gather`` has its weights there before it runs again.
    """

    forward: Callable[..., Any]
    given: tuple[list[Any], Any]
    surroundings: Surroundings
    again: Any
    gather: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Result:
    """A tensor that a call has returned, not kept alive; ``version`` is that of its return."""

    tensor: weakref.ref[torch.Tensor]
    version: int

    def is_in(self, leaf: torch.Tensor) -> bool:
        """Whether an argument has the values of this result, as it has them if made again.

        It may be another tensor of the same memory: ``fully_shard`` hands on such a one.
        """
        own = self.tensor()
        if own is None or leaf._version != self.version:
            return False
        return own is leaf or _look(own) == _look(leaf)


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (id(tensor),)
    return (
        type(tensor),
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.requires_grad,
    )


class _Holder:
    """Stands for a tensor that a call saved; has it between the second run and its use."""

    __slots__ = ("__weakref__", "call", "tensor")

    def __init__(self, call: int) -> None:
        self.call = call
        self.tensor: torch.Tensor | None = None


class _CompleteError(Exception):
    """All that was saved is there again."""


@dataclass(slots=True)
class _Stage:
    """A nest: its calls, and what waits for it of the calls before it, once those ran again."""

    calls: tuple[int, ...]
    saved: frozenset[int]
    around: "_Stage | None"
    inner: dict[int, "_Stage"] = field(default_factory=dict)
    waiting: dict[Made, Any] | None = None


def _stages(nest: Nest, around: _Stage | None = None) -> Iterator[_Stage]:
    """Give a nest and those in it, each known to the one around it by its first call."""
    saved = frozenset(each for each in nest if isinstance(each, int))
    own = _Stage(_calls(nest), saved, around)
    yield own
    for each in nest:
        if not isinstance(each, int):
            stages = list(_stages(each, own))
            own.inner[stages[0].calls[0]] = stages[0]
            yield from stages


def _calls(nest: Nest) -> tuple[int, ...]:
    found: list[int] = []
    for each in nest:
        found += [each] if isinstance(each, int) else _calls(each)
    return tuple(found)


class Run:
    """One pass through a segment: its calls so far, and what autograd saved in them."""

    def __init__(self, nest: Nest, stops_early: bool) -> None:
        self.calls: list[Call] = []
        self._stops_early = stops_early
        self._results: list[list[_Result | None]] = []
        self._holders: list[list[weakref.ref[_Holder]]] = [[] for _ in _calls(nest)]
        self._stage_of = {call: stage for stage in _stages(nest) for call in stage.saved}

    def noted(self, given: Any) -> tuple[list[Any], Any]:
        """Write down arguments, without what the segment itself has made."""
        leaves, spec = tree_flatten(given)
        return [self._note(leaf) for leaf in leaves], spec

    def _note(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for call, results in enumerate(self._results):
            for place, result in enumerate(results):
                if result is not None and result.is_in(leaf):
                    return Made(call, place)
        # With the graph of a block before it, it would keep this run, and the run it.
        return _Kept(leaf if leaf.grad_fn is None else _apart(leaf), leaf._version)

    def made(self, result: Any) -> None:
        """Note what a call has returned; tensors are not kept alive by this."""
        leaves = tree_leaves(result)
        self._results.append(
            [
                _Result(weakref.ref(leaf), leaf._version)
                if isinstance(leaf, torch.Tensor)
                else None
                for leaf in leaves
            ]
        )

    def pack(self, tensor: torch.Tensor) -> _Holder:
        """Keep a place for a tensor instead of the tensor."""
        call = len(self.calls) - 1
        holder = _Holder(call)
        self._holders[call].append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> torch.Tensor:
        """Give the tensor, after running its nest again if need be."""
        if holder.tensor is None:
            self._again(self._stage_of[holder.call])
        tensor, holder.tensor = holder.tensor, None
        if tensor is None:
            raise NotSupportedError(
                "blocks of a segment saved another number of tensors when they ran again; they do "
                "not compute the same twice"
            )
        return tensor

    def _again(self, stage: _Stage) -> None:
        if stage.around is not None and stage.waiting is None:
            self._again(stage.around)  # as in a second backward
        fills = _fill(
            [
                holder if call in stage.saved else None
                for call in stage.calls
                for holder in self._holders[call]
            ],
            self._stops_early,
        )

        def pack(tensor: torch.Tensor) -> None:
            fills.send(tensor.detach())

        next(fills)
        with (
            contextlib.suppress(_CompleteError),
            torch.enable_grad(),
            saved_tensors_hooks(pack, _never_unpacked),
        ):
            self._calls_again(stage)

    def _calls_again(self, stage: _Stage) -> None:
        results, stage.waiting = stage.waiting or {}, None
        last_use = self._last_uses(stage.calls)
        for place in stage.calls:
            if place in stage.inner:
                inner = stage.inner[place]
                needed = self._last_uses(inner.calls)
                inner.waiting = {
                    each: _apart(results[each]) for each in needed if each.call < place
                }
            call = self.calls[place]
            leaves, spec = call.given
            args, kwargs = tree_unflatten([_value(leaf, results) for leaf in leaves], spec)
            call.gather()
            with call.surroundings.again(), call.again:
                result = call.forward(*args, **kwargs)
            del args, kwargs
            for leaf, value in enumerate(tree_leaves(result)):
                results[Made(place, leaf)] = value
            del result
            for done in [each for each in results if last_use.get(each, -1) <= place]:
                del results[done]

    def _last_uses(self, calls: Sequence[int]) -> dict[Made, int]:
        """Tell which of some calls is the last to take a result of the segment's calls."""
        found: dict[Made, int] = {}
        for place in calls:
            given = self.calls[place].given[0]
            found.update({leaf: place for leaf in given if isinstance(leaf, Made)})
        return found


def _fill(
    holders: Sequence[weakref.ref[_Holder] | None], stops_early: bool
) -> Generator[None, torch.Tensor, None]:
    """Take tensors in the order in which they were saved, and give each to its holder, if any.

    Raises _CompleteError with the last of them, if it is to stop there.
    """
    for place, each in enumerate(holders):
        tensor = yield
        holder = each() if each is not None else None
        if holder is not None:
            holder.tensor = tensor
        if stops_early and place == len(holders) - 1:
            raise _CompleteError
    while True:
        yield


def _apart(value: Any) -> Any:
    """Give a result without the graph that made it, which may hold more than it."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _never_unpacked(packed: Any) -> Any:
    raise RuntimeError("a segment that runs again has no backward of its own")


def _value(leaf: Any, results: Mapping[Made, Any]) -> Any:
    if isinstance(leaf, Made):
        return results[leaf]
    if not isinstance(leaf, _Kept):
        return leaf
    if leaf.tensor._version != leaf.version:
        raise NotSupportedError(
            "an input of a segment was changed in place after its forward; running it again would "
            "compute something else; plan without segments"
        )
    return leaf.tensor
