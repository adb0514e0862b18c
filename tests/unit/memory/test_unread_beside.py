"""What else is named as given in vain: in variations, documents, plans, and of other subjects."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.memory.small_runs import (
    CP,
    DDP,
    EXPERTS,
    OFFLOADED,
    ONE,
    STEP,
    Run,
    figures,
    named,
    trained,
    with_setting,
)

from haversack.estimate import EstimateRequest, WhatIf
from haversack.parallelism import (
    Parallelism,
    Sharding,
    WrapPolicy,
)
from haversack.plan import PlanConstraints, PlanRequest, PlanWhatIf
from haversack.run import Budget, Device, Document, DocumentFormat, StateBytes, Unit
from haversack.training import (
    Attention,
    NumberType,
    Occasion,
    Optimizer,
    OptimizerKernel,
    Precision,
    Recompute,
    RecomputeModule,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.plan.answer import plan


def test_what_is_so_anyway_is_not_named() -> None:
    """Off, whole, in one part: a run without the setting is so too."""
    off = Parallelism(
        sequence_parallel=False,
        prefetch_units=0,
        expert_tp=1,
        layers_per_unit=1,
        overlap_reduce=False,
        pin_memory=False,
    )
    step = replace(STEP, no_sync=False, loss_parallel=False, fp8_parameters=False)
    assert named(estimate(Run(off, step).request())) == set()


def test_parts_that_a_model_does_not_have_are_named() -> None:
    run = replace(STEP, recompute=Recompute.SELECTIVE)
    parts = (RecomputeModule.MLP, RecomputeModule.MOE, RecomputeModule.LATENT_EXPANSION)
    asked = Run(training=replace(run, recompute_modules=parts)).request()
    without = Run(training=replace(run, recompute_modules=parts[:1])).request()
    answer = estimate(asked)
    assert answer.ignored_inputs == (
        "training.recompute_modules: MOE is read for a model with experts only",
        "training.recompute_modules: LATENT_EXPANSION is read with latent attention only",
    )
    assert figures(answer) == figures(estimate(without))
    experts = Run(training=replace(run, recompute_modules=parts[:2]), model=EXPERTS)
    assert named(estimate(experts.request())) == set()


def test_attention_that_is_not_known_is_said_to_be_a_flash_kernel_under_cp() -> None:
    asked = Run(CP.parallelism, replace(STEP, attention=Attention.UNKNOWN)).request()
    answer = estimate(asked)
    assert figures(answer) == figures(estimate(CP.request()))
    assert any("the only one that runs under cp=2" in each for each in answer.assumptions)


def test_a_variation_that_sets_something_in_vain_is_named_with_its_place() -> None:
    variations = (
        WhatIf(name="a", parallelism=Parallelism(tp=2)),
        WhatIf(name="b", parallelism=Parallelism(sequence_parallel=True)),
        WhatIf(name="c", parallelism=Parallelism(tp=2, sequence_parallel=True)),
    )
    base = with_setting(ONE.request(), "parallelism.gradient_as_bucket_view", True)
    answer = estimate(replace(base, what_ifs=variations))
    assert answer.ignored_inputs == (
        "parallelism.gradient_as_bucket_view: read under DistributedDataParallel on several ranks "
        "only",
        "what_ifs[1].parallelism.sequence_parallel: read with tp above 1 only",
    )
    assert answer.what_ifs[1].delta_bytes == 0


def test_a_document_that_sets_something_in_vain_is_told_by_its_field() -> None:
    """A DeepSpeed file of stage 2 often has the keys of stage 3 too."""
    stages = {"stage": 2, "stage3_max_live_parameters": 1000, "reduce_bucket_size": 1000}
    text = json.dumps({"zero_optimization": stages})
    file = Document(format=DocumentFormat.DEEPSPEED, name="ds.json", text=text)
    base = DDP.request()
    answer = estimate(replace(base, documents=(*base.documents, file)))
    in_vain = "parallelism.max_live_elements: read with parameters that ZERO_3 shards only"
    assert in_vain in answer.ignored_inputs
    assert "parallelism.reduce_bucket_elements" not in named(answer)


def test_the_devices_memory_beside_a_budget_is_named() -> None:
    budget = Budget(bytes=10**9)
    asked = replace(ONE.request(), budget=budget, device=Device(memory_bytes=10**6))
    alone = replace(asked, device=Device())
    assert named(estimate(asked)) == {"device.memory_bytes"}
    assert estimate(asked).verdict is estimate(alone).verdict
    by_name = replace(asked, device=Device(name="h100-80gb"))
    assert named(estimate(by_name)) == set()


UNITS = EstimateRequest(units=tuple(Unit(name=name, parameter_count=10**6) for name in "abc"))
COUNT = EstimateRequest(parameter_count=10**6)
STATES = EstimateRequest(state_bytes=StateBytes(parameter_bytes=8, optimizer_bytes=8))
SHARDED = Parallelism(world_size=4, sharding=Sharding.FSDP2)
TWICE = Training(accumulation=2)


@pytest.mark.parametrize(
    ("subject", "run", "training", "is_named"),
    [
        (UNITS, SHARDED, replace(TWICE, no_sync=True), False),
        (UNITS, SHARDED, replace(TWICE, occasions=(Occasion.SAVING,)), False),
        (UNITS, SHARDED, replace(TWICE, reduce_type=NumberType.BF16), False),
        (UNITS, SHARDED, replace(TWICE, optimizer_kernel=OptimizerKernel.FOREACH), False),
        (UNITS, SHARDED, replace(TWICE, loss_parallel=True), True),
        (UNITS, replace(SHARDED, prefetch_units=1), TWICE, False),
        (UNITS, replace(SHARDED, wrap=WrapPolicy.LAYERS), TWICE, True),
        (UNITS, Parallelism(tp=2, sequence_parallel=True), TWICE, True),
        (UNITS, Parallelism(prefetch_units=1), TWICE, True),
        (COUNT, replace(SHARDED, prefetch_units=1), Training(), True),
        (COUNT, Parallelism(pin_memory=True), Training(), True),
        (COUNT, replace(SHARDED, offload_parameters=True, pin_memory=False), Training(), False),
        (COUNT, Parallelism(sharding=Sharding.ZERO_2), Training(), True),
        (COUNT, SHARDED, Training(optimizer=Optimizer.SGD, precision=Precision.BF16), False),
        (STATES, SHARDED, Training(), False),
        (STATES, replace(SHARDED, reshard_after_forward=False), Training(), True),
        (STATES, Parallelism(sharding=Sharding.ZERO_1), Training(), True),
    ],
)
def test_subjects_without_a_model_name_what_they_do_not_use(
    subject: EstimateRequest, run: Parallelism, training: Training, is_named: bool
) -> None:
    answer = estimate(replace(subject, parallelism=run, training=training))
    assert bool(answer.ignored_inputs) is is_named
    assert len(answer.ignored_inputs) == len(named(answer)) <= 1


def planned(run: Run, **more: Any) -> PlanRequest:
    asked = run.request()
    return PlanRequest(
        documents=asked.documents,
        training=asked.training,
        parallelism=asked.parallelism,
        budget=Budget(bytes=10**10),
        frontier_points=0,
        **more,
    )


def test_a_plan_names_what_it_was_given_in_vain() -> None:
    run = Run(Parallelism(sequence_parallel=True, ranks_per_node=4))
    more = {"graph_ns": 10**9, "constraints": PlanConstraints(without_segments=True)}
    answer = plan(planned(run, **more))
    assert named(answer) == {
        *("parallelism.sequence_parallel", "parallelism.ranks_per_node"),
        *("graph_ns", "constraints.without_segments"),
    }
    plain = plan(planned(ONE))
    assert named(plain) == set()
    assert answer.predicted_peak_bytes == plain.predicted_peak_bytes


def test_a_plan_has_no_figures_of_hosts_but_is_put_beside_selective_runs() -> None:
    host = replace(OFFLOADED.parallelism, pin_memory=True)
    assert plan(planned(Run(host))).ignored_inputs == (
        "parallelism.pin_memory: a plan has no figures of hosts",
    )
    parts = trained(recompute_modules=(RecomputeModule.MLP,))
    assert named(plan(planned(parts))) == set()
    assert plan(planned(parts)).baselines != plan(planned(ONE)).baselines


def test_a_plans_variation_is_told_by_its_place_too() -> None:
    what_if = PlanWhatIf(name="a", parallelism=Parallelism(sequence_parallel=True))
    assert plan(planned(ONE, what_ifs=(what_if,))).ignored_inputs == (
        "what_ifs[0].parallelism.sequence_parallel: read with tp above 1 only",
    )
