"""What certified and executed plans come to: the figures that the issue gates, and each model's."""

from collections.abc import Iterator, Sequence
from statistics import median

from tests.bench.plan_cases import Case
from tests.bench.table import Row, at_least, at_most

from haversack.basis import Basis

_SECTION = "executed"


def rows(found: Sequence[Case]) -> Iterator[Row]:
    """Gate what the issue gates, then say each model by itself."""
    yield at_least(_SECTION, "cases (model, option set, budget)", len(found), 200, "cases")
    yield from _certified(found)
    said = "executed peak within the budget, by each count taken"
    yield at_least(_SECTION, said, _percent([case.holds for case in found]), 100, "%")
    yield from _allocated([case for case in found if case.executed.allocated_bytes is not None])
    exact = _percent([case.is_exact for case in found])
    yield at_least(_SECTION, "loss and gradients equal to the bit", exact, 100, "%")
    ratios = [case.ratio for case in found]
    yield at_least(_SECTION, "predicted / executed, least", min(ratios), 1.0)
    yield at_most(_SECTION, "predicted / executed, median", median(ratios), 1.05)
    yield at_most(_SECTION, "predicted / executed, largest", max(ratios), 1.10)
    segments = sum(case.rung == "segments" for case in found)
    yield Row(_SECTION, "cases answered by segments", segments, "cases")
    for name in dict.fromkeys(case.subject for case in found):
        yield from _of_model(name, [case for case in found if case.subject == name])


def _percent(found: Sequence[bool]) -> float:
    return 100 * sum(found) / len(found)


def _certified(found: Sequence[Case]) -> Iterator[Row]:
    """Say what stands on its certificate, and how far that is from what the step then needs."""
    certified = sum(case.basis is Basis.SIMULATED for case in found)
    said = f"certified, basis SIMULATED, of {len(found)}"
    yield at_least(_SECTION, said, certified, len(found), "cases")
    anew = sum(case.plans > 1 for case in found)
    yield Row(_SECTION, f"planned anew after a first step, of {len(found)}", anew, "cases")
    ratios = [case.certified_ratio for case in found]
    yield at_least(_SECTION, "certified / executed, least", min(ratios), 1.0)
    yield at_most(_SECTION, "certified / executed, largest", max(ratios), 1.02)


def _allocated(counted: Sequence[Case]) -> Iterator[Row]:
    """Say what holds by the allocator's count, plans apart that the reserve was taken from."""
    said = f"within the budget by the allocator's count too, of {len(counted)}"
    yield at_least(_SECTION, said, sum(case.holds for case in counted), len(counted), "cases")
    others = [case for case in counted if not case.gave_reserve]
    said = f"of those, within it with a reserve of other steps, of {len(others)}"
    yield at_least(_SECTION, said, sum(case.holds for case in others), len(others), "cases")
    ratios = [case.allocated_ratio for case in counted]
    yield Row(_SECTION, "predicted with reserve / allocated, median", median(ratios), "x")
    yield Row(_SECTION, "predicted with reserve / allocated, largest", max(ratios), "x")


def _of_model(name: str, own: Sequence[Case]) -> Iterator[Row]:
    ratios = [case.ratio for case in own]
    what = f"{name}: predicted / executed"
    yield Row("by model", f"{what}, median", median(ratios), "x")
    yield Row("by model", f"{what}, largest", max(ratios), "x")
    broken = sum(not case.holds for case in own)
    yield Row("by model", f"{name}: over the budget, of {len(own)}", broken, "cases")
