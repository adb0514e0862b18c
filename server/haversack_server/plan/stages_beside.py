"""Well-known ways to choose for a described model, by class of equal ranks."""

from collections.abc import Sequence

from haversack.plan import Baseline
from haversack_server.memory.chain import Chain
from haversack_server.memory.model_run import ModelRun
from haversack_server.plan.baselines import baselines, ways_of
from haversack_server.plan.in_flight import InFlight
from haversack_server.plan.one_stage import OneStage
from haversack_server.plan.solving import Solving
from haversack_server.plan.stages import Stage


def baselines_of(run: ModelRun, stages: Sequence[Stage], budget_bytes: int) -> tuple[Baseline, ...]:
    """Put each way beside the plan: on all classes, with the highest peak and the most extra time.

    The options are those of the model, selective recomputation among them, without constraints.
    """
    by_name: dict[str, list[Baseline]] = {}
    for stage in stages:
        for each in _of_chain(run.stages[stage.ranks.stages[0]], budget_bytes):
            by_name.setdefault(each.name, []).append(each)
    everywhere = [found for found in by_name.values() if len(found) == len(stages)]
    return tuple(_joined(found) for found in everywhere)


def _of_chain(chain: Chain, budget_bytes: int) -> tuple[Baseline, ...]:
    options = [block.options for block in chain.blocks]
    search = OneStage(chain, 1, Solving()) if chain.pipeline.stages == 1 else InFlight(chain, 1)
    ways = list(ways_of(options, search.peak, budget_bytes))
    return baselines(options, search.peak, budget_bytes, ways)


def _joined(found: Sequence[Baseline]) -> Baseline:
    return Baseline(
        name=found[0].name,
        peak_bytes=max(each.peak_bytes for each in found),
        fits=all(each.fits for each in found),
        extra_ns=max(each.extra_ns for each in found),
        saved_count=sum(each.saved_count for each in found),
    )
