"""The first place where a replay differs, with the state that its region found changed.

The place itself is found by the worker, from a trace; no torch here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from haversack.verify import DifferenceCause, Facet, FacetResult, FirstDifference, StateChange
from haversack_server.verify.findings import Outcomes, listed

_RANDOM = (DifferenceCause.RNG, DifferenceCause.RNG_GENERATOR)


def first_difference(runs: Outcomes, found: Iterable[FacetResult]) -> FirstDifference | None:
    """Give the place that a traced run found; else the state that changed, where something did."""
    if runs.traced is None or runs.traced.first_difference is not None:
        return runs.traced.first_difference if runs.traced else None
    changed = [each for each in found if each.facet is Facet.SIDE_EFFECTS and each.names]
    regions = [count.region for count in runs.checkpointed.regions]
    if not changed or not regions:
        return None
    name = changed[0].names[0]
    return FirstDifference(
        region=regions[0] if len(regions) == 1 else "",
        cause=DifferenceCause.STATE_ONLY,
        detail=f"No operation of a replay differs, but what replays leave in {name} does",
    )


def with_state(
    place: FirstDifference | None, changes: Sequence[StateChange]
) -> FirstDifference | None:
    """Add to a first difference what its region reaches and its replay found changed."""
    if place is None or place.cause in _RANDOM:
        return place
    own = [each for each in changes if each.region == place.region and not each.by_replay]
    if not own:
        return place
    told = [f"{each.name} ({each.before}, then {each.after})" for each in own]
    return replace(place, detail=f"{place.detail}; changed since its forward: {listed(told)}")
