"""Segments of a plan as regions of a run: each of their blocks is one, counted and watched.

A segment runs its blocks again itself, without ``torch.utils.checkpoint`` and its comparison, so
no probe of saved values looks into it. What a request sets for checkpointed calls holds here too.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from haversack.torch.segment_runs import Nest
from haversack.torch.segments import Member, Segment
from haversack_server.worker.regions import Regions

Forward = Callable[..., Any]


def follow(model: nn.Module, regions: Regions) -> None:
    """Send every call of a block in a segment to ``regions``, for good."""
    for segment in segments_in(model):
        settings = regions.overrides
        segment.stops_early = settings.get("early_stop", True)
        segment.preserves_random = settings.get("preserve_rng_state", True)
        _intercept(segment, regions)


def segments_in(model: nn.Module) -> Iterator[Segment]:
    """Give the segments that are in effect on a model, each once."""
    forwards = [module.__dict__.get("forward") for module in model.modules()]
    known = {id(each.segment): each.segment for each in forwards if isinstance(each, Member)}
    yield from known.values()


def _intercept(segment: Segment, regions: Regions) -> None:
    own, replays = segment.call, _replays(segment.nest)

    def call(place: int, forward: Forward, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return regions.follow(
            lambda counted: own(place, counted, args, kwargs),
            forward,
            args,
            kwargs,
            replays=replays[place],
        )

    segment.__dict__["call"] = call


def _replays(nest: Nest, depth: int = 1) -> dict[int, int]:
    """Tell how often each block runs again: once for each nest that it is in."""
    found: dict[int, int] = {}
    for each in nest:
        found |= {each: depth} if isinstance(each, int) else _replays(each, depth + 1)
    return found
