"""Selective policies: which results of a block's operations are saved, the rest being recomputed.

A policy names operations by overload and occurrence, so that it can travel as the name of an
option: ``selective aten.mm.default:0,2 aten.bmm.default:1``. Occurrences count from 0 within one
call of one block; views are not counted, as PyTorch's selective checkpoint never saves them.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy

from haversack.errors import NotSupportedError
from haversack.torch.random_operations import draws_random
from haversack.torch.replay import ContextFn

_PREFIX = "selective"
_PART = re.compile(r"([\w.]+):(\d+(?:,\d+)*)")


@dataclass(frozen=True, slots=True)
class Policy:
    """What is saved: pairs of an operation's overload and its occurrence in the block."""

    saved: frozenset[tuple[str, int]]

    @property
    def option(self) -> str:
        """The name of the option; equal policies have equal names."""
        places: dict[str, list[int]] = {}
        for operation, occurrence in sorted(self.saved):
            places.setdefault(operation, []).append(occurrence)
        parts = [f"{name}:{','.join(map(str, found))}" for name, found in places.items()]
        return " ".join([_PREFIX, *parts])

    def contexts(self) -> ContextFn:
        """Make a ``context_fn``; every call of the block counts its operations by itself."""
        make: Any = checkpoint.create_selective_checkpoint_contexts  # it has no types
        return lambda: make(_decider(self.saved))


def parsed(option: str) -> Policy | None:
    """Read a policy from the name of an option; None if it is none."""
    prefix, *parts = option.split(" ")
    found = [_PART.fullmatch(part) for part in parts]
    if prefix != _PREFIX or not parts:
        return None
    saved: set[tuple[str, int]] = set()
    for match in found:
        if match is None:
            return None
        saved.update((match[1], int(each)) for each in match[2].split(","))
    return Policy(frozenset(saved))


def _decider(saved: Iterable[tuple[str, int]]) -> Any:
    # PyTorch up to 2.12 asks again in the recomputation, whose operations are counted apart.
    counts: Counter[tuple[bool, str]] = Counter()

    def decide(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = str(operation)
        place = counts[context.is_recompute, name]
        counts[context.is_recompute, name] += 1
        if (name, place) not in saved:
            return CheckpointPolicy.PREFER_RECOMPUTE
        if draws_random(operation, args, kwargs):
            raise NotSupportedError(
                f"{name} draws random numbers: were its result saved, those that are drawn after "
                "it would be others in the recomputation; leave it out of the policy"
            )
        return CheckpointPolicy.MUST_SAVE

    return decide
