"""Plans for pipelines, and for equal blocks alike: exact, and what Estimate says of the actions."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.unit.plan.test_model import LLAMA_3_8B

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, PipelineSchedule, Sharding
from haversack.plan import Plan, PlanConstraints, PlanRequest, PlanStatus
from haversack.run import Budget, Document, DocumentFormat, Training
from haversack.units import GIB
from haversack_server.estimate.answer import estimate
from haversack_server.memory.model_run import model_run
from haversack_server.memory.timeline import timeline
from haversack_server.plan.answer import plan
from haversack_server.plan.solving import Solving
from haversack_server.plan.stages import planned, stages_of

SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 512, "tie_word_embeddings": false}""",
)
PIPELINES = {
    "1F1B": Parallelism(world_size=2, pp=2),
    "GPipe": Parallelism(world_size=2, pp=2, pipeline_schedule=PipelineSchedule.GPIPE),
    "interleaved": Parallelism(world_size=2, pp=2, virtual_stages=2),
    "sharded": Parallelism(world_size=4, pp=2, sharding=Sharding.FSDP2),
}


def request_of(pipeline: str, **fields: Any) -> PlanRequest:
    training = Training(microbatch=2, seq=256, accumulation=3)
    given = {"parallelism": PIPELINES[pipeline], "frontier_points": 0, "fit_expected": True}
    return PlanRequest(
        documents=(SMALL,), training=training, budget=Budget(bytes=GIB), **{**given, **fields}
    )


def budgets(floor: int, everything: int) -> Iterator[int]:
    yield from (floor + (everything - floor) * step // 4 for step in range(5))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_stage_has_the_cheapest_of_all_its_plans(pipeline: str) -> None:
    request = request_of(pipeline)
    for stage in stages_of(request, model_run(request), Solving()):
        rows = [range(len(block.options)) for block in stage.chain.blocks]
        every = {
            options: timeline(stage.chain, options, whole=False).peak.allocated_bytes
            for options in product(*rows)
        }
        assert stage.floor_bytes == min(every.values())
        for budget_bytes in budgets(stage.floor_bytes, stage.everything_bytes()):
            (found,) = planned([stage], budget_bytes)
            cheapest = min(
                sum(b.options[o].extra_ns for b, o in zip(stage.chain.blocks, each, strict=True))
                for each, peak in every.items()
                if peak <= budget_bytes
            )
            assert every[found.choice.options] <= budget_bytes
            assert found.choice.extra_ns == found.choice.lower_bound == cheapest


def between(pipeline: str, share: float) -> PlanRequest:
    request = request_of(pipeline)
    stages = stages_of(request, model_run(request), Solving())
    floor = max(stage.floor_bytes for stage in stages)
    span = max(stage.everything_bytes() for stage in stages) - floor
    return replace(request, budget=Budget(bytes=floor + int(share * span)))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_predicted_peak_of_a_pipeline_is_what_estimate_says_of_its_actions(
    pipeline: str,
) -> None:
    request = between(pipeline, 0.5)
    answer = plan(request)
    assert answer.status is PlanStatus.OPTIMAL
    assert len(answer.actions) == 10
    assert {each.name for each in answer.ranks} == {"stage 0", "stage 1"}
    same = estimate(
        EstimateRequest(
            documents=request.documents,
            training=replace(request.training, actions=answer.actions),
            parallelism=request.parallelism,
        )
    )
    assert same.peak is not None
    assert same.peak.allocated.expected_bytes == answer.predicted_peak_bytes
    by_class = {each.name: each.peak.allocated.expected_bytes for each in same.ranks if each.peak}
    assert by_class == {each.name: each.predicted_peak_bytes for each in answer.ranks}


def test_a_rank_is_answered_alone() -> None:
    request = replace(between("1F1B", 0.5), rank=1)
    (alone,) = plan(request).ranks
    both = {each.name: each for each in plan(replace(request, rank=None)).ranks}
    assert alone == both["stage 1"]
    with pytest.raises(InvalidRequestError, match=r"none of the run.s 2 ranks"):
        plan(replace(request, rank=2))


def alike(answer: Plan) -> bool:
    layers = [action.option for action in answer.actions if "layers" in action.block]
    return len(set(layers)) == 1


@pytest.mark.parametrize("pipeline", ["1F1B", "interleaved"])
def test_equal_layers_are_treated_alike_at_a_price(pipeline: str) -> None:
    request = between(pipeline, 0.5)
    free = plan(request)
    same = plan(replace(request, constraints=PlanConstraints(equal_treatment=True)))
    assert alike(same)
    assert not alike(free)
    assert same.status is PlanStatus.OPTIMAL
    assert same.equal_treatment_ns == same.extra_ns - free.extra_ns > 0
    assert free.equal_treatment_ns is None
    assert request.budget is not None
    assert same.predicted_peak_bytes is not None
    assert same.predicted_peak_bytes <= request.budget.bytes


def test_a_pipeline_s_constraints_name_blocks_of_any_stage() -> None:
    named = PlanConstraints(must_save=("model.layers.0",), must_recompute=("model.layers.7",))
    options = {
        action.block: action.option
        for action in plan(replace(request_of("1F1B"), constraints=named)).actions
    }
    assert options["model.layers.0"] == "save"
    assert [name for name, option in options.items() if option == "recompute"] == ["model.layers.7"]
    wrong = PlanConstraints(must_save=("model.layers.0", "nothing"))
    with pytest.raises(InvalidRequestError, match=r"must_save\[1\].*no block"):
        plan(replace(request_of("1F1B"), constraints=wrong))


def test_a_budget_below_the_floor_of_one_stage_has_no_plan() -> None:
    request = between("1F1B", 0.0)
    assert request.budget is not None
    answer = plan(replace(request, budget=Budget(bytes=request.budget.bytes - 1)))
    assert answer.status is PlanStatus.INFEASIBLE
    assert answer.floor_bytes == request.budget.bytes


def test_known_ways_and_what_the_next_bytes_buy_stand_beside_the_plan() -> None:
    answer = plan(
        PlanRequest(
            documents=(LLAMA_3_8B,),
            training=Training(microbatch=1, seq=8192),
            parallelism=Parallelism(world_size=8, sharding=Sharding.FSDP2),
            budget=Budget(bytes=60 * GIB),
        )
    )
    ways = {each.name: each for each in answer.baselines}
    assert {"none", "full", "every 2nd block", "greedy"} < set(ways)
    assert not ways["none"].fits
    assert ways["none"].extra_ns == 0
    assert all(each.extra_ns >= answer.extra_ns for each in ways.values() if each.fits)
    assert ways["greedy"].fits
    assert answer.reading is not None
    assert answer.reading.next_gib_spares_ns > 0
