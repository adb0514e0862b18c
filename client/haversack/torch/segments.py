"""Several blocks under one checkpoint, each called by the model's own code.

A checkpoint of PyTorch takes one function. Blocks that follow one another in a model's loop have
none in common, so a *segment* follows their calls: it notes the arguments of each, and in backward
runs the calls again, one after the other. An argument that a block of the segment has made is not
kept, it is made again; any other is kept, so that what runs between the blocks may be anything.
Knows no plan.
"""

import contextlib
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from haversack.errors import NotSupportedError
from haversack.torch.replay import ContextFn
from haversack.torch.surroundings import Surroundings

Forward = Callable[..., Any]


class Segment:
    """The forwards of modules that follow one another; ``members`` replace those of the modules.

    ``skipping`` has the bytes of what a block handed to one that is not the next, by block and
    result: in a shorter segment they may have to be kept.
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        *,
        context_fn: ContextFn | None = None,
        preserve_rng_state: bool = True,
    ) -> None:
        self.names = tuple(blocks)
        self._context_fn = context_fn
        self.preserves_random = preserve_rng_state
        self._run: _Run | None = None
        self.skipping: dict[tuple[int, int], int] = {}
        self.members = [Member(self, place, module) for place, module in enumerate(blocks.values())]

    def call(self, place: int, forward: Forward, args: Any, kwargs: Any) -> Any:
        """Run a block's forward as the segment's next one."""
        if place == 0:
            self._run = _Run()
        run = self._run
        if run is None or len(run.calls) != place:
            self._run = None
            raise NotSupportedError(
                f"{self.names[place]} is in a segment from {self.names[0]} to {self.names[-1]} and "
                "did not run after the block before it; plan without segments"
            )
        if place == len(self.names) - 1:
            self._run = None
        contexts = self._context_fn() if self._context_fn else _no_contexts()
        noted = run.noted((args, kwargs))
        self._note_skips(place, noted[0], (args, kwargs))
        call = _Call(forward, noted, Surroundings.here(self.preserves_random), contexts[1])
        run.calls.append(call)
        with contexts[0], saved_tensors_hooks(run.pack, run.unpack):
            result = forward(*args, **kwargs)
        run.made(result)
        return result

    def _note_skips(self, place: int, noted: Sequence[Any], given: Any) -> None:
        for leaf, tensor in zip(noted, tree_leaves(given), strict=True):
            if isinstance(leaf, _Made) and leaf.call < place - 1:
                self.skipping[leaf.call, leaf.leaf] = tensor.untyped_storage().nbytes()


class Member:
    """One module's forward as part of a segment; ``put`` makes it the module's own."""

    def __init__(self, segment: Segment, place: int, module: nn.Module) -> None:
        self.segment = segment
        self.forward: Forward = module.forward
        self._place = place
        self._own = module.__dict__.get("forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward; run it again in backward, if there will be one."""
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        return self.segment.call(self._place, self.forward, args, kwargs)

    def leave_generators(self) -> None:
        """Restore no generators: under fake tensors none is drawn from, and none can be set."""
        self.segment.preserves_random = False

    def put(self, module: nn.Module) -> None:
        """Take the place of the module's forward."""
        module.__dict__["forward"] = self

    def remove(self, module: nn.Module) -> None:
        """Give the module its forward back."""
        if self._own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = self._own


def _no_contexts() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class _Made:
    """An argument that a call of the segment has made: which one, and which of its results."""

    call: int
    leaf: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tensor from outside, and its version, by which a later change of it is seen."""

    tensor: torch.Tensor
    version: int


@dataclass(slots=True)
class _Call:
    """A block's forward, its arguments, and what surrounded it."""

    forward: Forward
    given: tuple[list[Any], Any]
    surroundings: Surroundings
    again: Any


class _Holder:
    """Stands for a saved tensor; has it between the second run and its use."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: torch.Tensor | None = None


class _CompleteError(Exception):
    """All that was saved is there again."""


class _Run:
    """One pass through a segment: its calls so far, and what autograd saved in them."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self._results: list[list[weakref.ref[torch.Tensor] | None]] = []
        self._holders: list[weakref.ref[_Holder]] = []

    def noted(self, given: Any) -> tuple[list[Any], Any]:
        """Write down arguments, without what the segment itself has made."""
        leaves, spec = tree_flatten(given)
        return [self._note(leaf) for leaf in leaves], spec

    def _note(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for call, results in enumerate(self._results):
            for place, result in enumerate(results):
                if result is not None and result() is leaf:
                    return _Made(call, place)
        return _Kept(leaf, leaf._version)

    def made(self, result: Any) -> None:
        """Note what a call has returned; tensors are not kept alive by this."""
        leaves = tree_leaves(result)
        self._results.append(
            [weakref.ref(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
        )

    def pack(self, tensor: torch.Tensor) -> _Holder:
        """Keep a place for a tensor instead of the tensor."""
        holder = _Holder()
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> torch.Tensor:
        """Give the tensor, after running the segment again if need be."""
        if holder.tensor is None:
            self._again()
        tensor, holder.tensor = holder.tensor, None
        if tensor is None:
            raise NotSupportedError(
                "blocks of a segment saved another number of tensors when they ran again; they do "
                "not compute the same twice"
            )
        return tensor

    def _again(self) -> None:
        fills = _fill(self._holders)

        def pack(tensor: torch.Tensor) -> None:
            fills.send(tensor.detach())

        next(fills)
        with (
            contextlib.suppress(_CompleteError),
            torch.enable_grad(),
            saved_tensors_hooks(pack, _never_unpacked),
        ):
            self._calls_again()

    def _calls_again(self) -> None:
        results: dict[int, list[Any]] = {}
        last_use = self._last_uses()
        for place, call in enumerate(self.calls):
            leaves, spec = call.given
            args, kwargs = tree_unflatten([_value(leaf, results) for leaf in leaves], spec)
            with call.surroundings.again(), call.again:
                result = call.forward(*args, **kwargs)
            del args, kwargs
            results[place] = tree_leaves(result)
            del result
            for done in [each for each in results if last_use.get(each, -1) <= place]:
                del results[done]

    def _last_uses(self) -> dict[int, int]:
        """Tell which call is the last to take a result of each."""
        found: dict[int, int] = {}
        for place, call in enumerate(self.calls):
            found.update({leaf.call: place for leaf in call.given[0] if isinstance(leaf, _Made)})
        return found


def _fill(
    holders: Sequence[weakref.ref[_Holder]],
) -> Generator[None, torch.Tensor, None]:
    """Take tensors in the order in which they were saved, and give each to its holder."""
    for place, each in enumerate(holders):
        tensor = yield
        holder = each()
        if holder is not None:
            holder.tensor = tensor
        if place == len(holders) - 1:
            raise _CompleteError


def _never_unpacked(packed: Any) -> Any:
    raise RuntimeError("a segment that runs again has no backward of its own")


def _value(leaf: Any, results: Mapping[int, Sequence[Any]]) -> Any:
    if isinstance(leaf, _Made):
        return results[leaf.call][leaf.leaf]
    if not isinstance(leaf, _Kept):
        return leaf
    if leaf.tensor._version != leaf.version:
        raise NotSupportedError(
            "an input of a segment was changed in place after its forward; running it again would "
            "compute something else; plan without segments"
        )
    return leaf.tensor
