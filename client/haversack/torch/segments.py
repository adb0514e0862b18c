"""Several blocks under one checkpoint, each called by the model's own code.

A checkpoint of PyTorch takes one function. Blocks that follow one another in a model's loop have
none in common, so a *segment* follows their calls: it notes the arguments of each, and in backward
runs the calls again, one after the other. Which calls are saved then, and which run once more, is
its nest. Knows no plan.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from haversack.errors import NotSupportedError
from haversack.torch.gathering import gather, refuse_flattened
from haversack.torch.regions import both
from haversack.torch.replay import ContextFn
from haversack.torch.segment_runs import Call, Made, Nest, Run
from haversack.torch.states import standing_states
from haversack.torch.surroundings import Surroundings

Forward = Callable[..., Any]


class Segment:
    """The forwards of modules that follow one another; ``members`` replace those of the modules.

    ``skipping`` has the bytes of what a block handed to one that is not the next, by block and
    result: in a shorter segment they may have to be kept. Blocks run again until all is there that
    autograd saved, or to their end where ``stops_early`` is set to False. ``nest`` has the blocks
    by their places; without it all are saved when they run again. ``around`` has for each block
    the module itself and those around it, outwards: one of them may be sharded, or be later.
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        *,
        nest: Nest | None = None,
        context_fn: ContextFn | None = None,
        around: Sequence[Sequence[nn.Module]] = (),
    ) -> None:
        self.names = tuple(blocks)
        self.nest = tuple(range(len(blocks))) if nest is None else nest
        self._context_fn = context_fn
        self.preserves_random = True
        self.stops_early = True
        self._run: Run | None = None
        self._around = around or [(module,) for module in blocks.values()]
        self._unchecked = [len(list(module.parameters())) for module in blocks.values()]
        self.skipping: dict[tuple[int, int], int] = {}
        self.members = [Member(self, place, module) for place, module in enumerate(blocks.values())]

    def leave_generators(self) -> None:
        """Restore none; a tensor stands for each state."""
        if self.preserves_random:
            own, self.preserves_random = self._context_fn, False
            self._context_fn = both(standing_states, own) if own else standing_states

    def call(self, place: int, forward: Forward, args: Any, kwargs: Any) -> Any:
        """Run a block's forward as the segment's next one."""
        if place == 0:
            self._run = Run(self.nest, self.stops_early)
        run = self._run
        if run is None or len(run.calls) != place:
            self._run = None
            raise NotSupportedError(
                f"{self.names[place]} is in a segment from {self.names[0]} to {self.names[-1]} and "
                "did not run after the block before it; plan without segments"
            )
        if place == len(self.names) - 1:
            self._run = None
        if self._unchecked:
            self._check()
        contexts = self._context_fn() if self._context_fn else _no_contexts()
        noted = run.noted((args, kwargs))
        self._note_skips(place, noted[0], (args, kwargs))
        surroundings = Surroundings.here(self.preserves_random)
        gathered = functools.partial(gather, self._around[place])
        call = Call(forward, noted, surroundings, contexts[1], gathered)
        run.calls.append(call)
        with contexts[0], saved_tensors_hooks(run.pack, run.unpack):
            result = forward(*args, **kwargs)
        run.made(result)
        return result

    def _check(self) -> None:
        """Look at all blocks when the first of them runs for the first time."""
        for name, around, count in zip(self.names, self._around, self._unchecked, strict=True):
            refuse_flattened(name, around[0], count)
        self._unchecked = []

    def _note_skips(self, place: int, noted: Sequence[Any], given: Any) -> None:
        for leaf, tensor in zip(noted, tree_leaves(given), strict=True):
            if isinstance(leaf, Made) and leaf.call < place - 1:
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
        self.segment.leave_generators()

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
