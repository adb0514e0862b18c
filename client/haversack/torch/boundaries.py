"""Where a real step is: the phase and the block that runs, told at every change.

Hooks of modules and of gradients, so a model may be wrapped, sharded or planned; nothing of it is
replaced. Backward is known by ``torch.autograd.backward``, which every loss's own ``backward``
calls, the optimizer by its step's hooks. Reads no memory.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from haversack.observed import BACKWARD, FORWARD, OPTIMIZER

Place = tuple[str, str]  # phase, and block
Moved = Callable[[Place], None]


@contextmanager
def told(model: nn.Module, blocks: Mapping[str, nn.Module], moved: Moved) -> Iterator[None]:
    """Call ``moved`` with the place that begins, until the end of the ``with``."""
    step = _Step(moved, next(iter(blocks), ""))
    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(step.begins).remove)
        for name, block in blocks.items():
            enters, leaves = step.around(name)
            stack.callback(block.register_forward_pre_hook(enters, with_kwargs=True).remove)
            stack.callback(block.register_forward_hook(leaves, with_kwargs=True).remove)
        stack.callback(register_optimizer_step_pre_hook(step.steps).remove)
        stack.enter_context(_heard_backward(step.turns))
        yield


class _Step:
    """The place of a step, as a part of the chain: block j is ``2 j + 1``, even parts lie between.

    In backward a part begins with the gradient of what it made.
    """

    def __init__(self, moved: Moved, first: str) -> None:
        self._moved = moved
        self._first = [f"(before {first})" if first else ""]
        self._names = list(self._first)
        self._part = 0
        self._is_backward = False

    def begins(self, *_: Any) -> None:
        """Note the begin of a microbatch."""
        self._is_backward = False
        self._names = list(self._first)
        self._enter(0)

    def around(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """Give the hooks of a block."""

        def enters(_: nn.Module, args: Any, kwargs: Any) -> None:
            if not self._is_backward:
                self._on_gradients((args, kwargs), self._part)
                self._names.append(name)
                self._enter(len(self._names) - 1)

        def leaves(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            if not self._is_backward:
                self._on_gradients(result, self._part)
                self._names.append(f"(after {name})")
                self._enter(len(self._names) - 1)

        return enters, leaves

    def _enter(self, part: int) -> None:
        self._part = part
        self._moved((BACKWARD if self._is_backward else FORWARD, self._names[part]))

    def _on_gradients(self, value: Any, part: int) -> None:
        def arrived(_: torch.Tensor) -> None:
            # A tensor between two blocks ends one and begins the other: the earlier one holds.
            if part < self._part:
                self._enter(part)

        for leaf in tree_leaves(value):
            # A leaf of autograd is a parameter or an input: no block has made it.
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None:
                hooked: Any = leaf  # the method has no types
                hooked.register_hook(arrived)

    def turns(self) -> None:
        """Note the begin of a backward."""
        self._is_backward = True
        self._enter(self._part)

    def steps(self, *_: Any) -> None:
        """Note an optimizer's step; what follows, such as another's, is of the same phase."""
        self._moved((OPTIMIZER, ""))


@contextmanager
def _heard_backward(turns: Callable[[], None]) -> Iterator[None]:
    backward = torch.autograd.backward

    def heard(*args: Any, **kwargs: Any) -> None:
        turns()
        backward(*args, **kwargs)

    autograd: Any = torch.autograd
    autograd.backward = heard
    try:
        yield
    finally:
        autograd.backward = backward
