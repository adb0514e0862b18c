"""Selective policies: which results of a block's operations are saved, and which left out.

A policy names operations by overload and occurrence, so that it can travel as the name of an
option: ``selective aten.mm.default:0,2 aten.bmm.default:1 without aten.add.Tensor:0``. Occurrences
count from 0 within one call of one block; views are never saved. What is neither saved nor left
out is recomputed.
"""

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy

from haversack.errors import NotSupportedError
from haversack.torch.occurrences import Occurrence, read, written
from haversack.torch.random_operations import draws_random
from haversack.torch.replay import ContextFn
from haversack.torch.trimmed import trimmed_contexts

_PREFIX, _WITHOUT = "selective", "without"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is saved and left out: pairs of an operation's overload and its occurrence in the block.

    What is left out is neither run again nor made: nothing that runs again may need it.
    """

    saved: frozenset[Occurrence]
    left_out: frozenset[Occurrence] = frozenset()

    @property
    def option(self) -> str:
        """The name of the option; equal policies have equal names."""
        parts = [_PREFIX, *written(self.saved)]
        if self.left_out:
            parts += [_WITHOUT, *written(self.left_out)]
        return " ".join(parts)

    def contexts(self) -> ContextFn:
        """Make a ``context_fn``; every call of the block counts its operations by itself."""
        make: Any = checkpoint.create_selective_checkpoint_contexts  # it has no types
        trimmed = trimmed_contexts(self.saved, self.left_out, _refuse_random)

        def context_fn() -> Any:
            # A compiler leaves out by itself what nobody needs, and takes PyTorch's modes alone.
            if not self.left_out or torch.compiler.is_compiling():
                return make(_decider(self.saved))
            return trimmed()

        return context_fn


@functools.lru_cache(maxsize=1024)  # a profile asks for few options, of each block and run anew
def parsed(option: str) -> Policy | None:
    """Read a policy from the name of an option; None if it is none."""
    prefix, *parts = option.split(" ")
    split = parts.index(_WITHOUT) if _WITHOUT in parts else len(parts)
    saved, left_out = read(parts[:split]), read(parts[split + 1 :])
    if prefix != _PREFIX or not parts or parts[-1] == _WITHOUT:
        return None
    return Policy(saved, left_out) if saved is not None and left_out is not None else None


def _decider(saved: Iterable[tuple[str, int]]) -> Any:
    # PyTorch up to 2.12 asks again in the recomputation, whose operations are counted apart.
    counts: Counter[tuple[bool, str]] = Counter()

    def decide(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = str(operation)
        place = counts[context.is_recompute, name]
        counts[context.is_recompute, name] += 1
        if (name, place) not in saved:
            return CheckpointPolicy.PREFER_RECOMPUTE
        _refuse_random(operation, args, kwargs)
        return CheckpointPolicy.MUST_SAVE

    return decide


def _refuse_random(operation: Any, args: Any, kwargs: Any) -> None:
    if draws_random(operation, args, kwargs):
        raise NotSupportedError(
            f"{operation} draws random numbers: were its result saved, those that are drawn after "
            "it would be others in the recomputation; leave it out of the policy"
        )
