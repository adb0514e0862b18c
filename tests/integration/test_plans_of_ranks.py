"""Plans of several ranks: what they count, and what is refused; no step is run.

``test_sharded_plans`` runs their steps.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")

from tests.integration.planned_gpt import MIXED, ddp, fsdp2, profiled
from tests.integration.small_gpt import BLOCKS, workload_of

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.run import BlockAction, Budget, NumberType, Precision, Training
from haversack.spread import spread_of
from haversack.torch import certify, profile
from haversack.torch.divided import divided
from haversack_server.plan.answer import plan


def test_on_one_rank_nothing_is_sharded() -> None:
    _, found = profiled()
    request = PlanRequest(profile=found, budget=Budget(bytes=2**40))
    assert plan(replace(request, parallelism=fsdp2(1))).moments == plan(request).moments


def test_more_ranks_need_less() -> None:
    _, found = profiled()
    answers = [
        plan(PlanRequest(profile=found, budget=Budget(bytes=2**40), parallelism=fsdp2(ranks)))
        for ranks in (2, 8, 64)
    ]
    floors = [each.floor_bytes for each in answers]
    assert floors == sorted(floors, reverse=True)
    assert all(each.status is PlanStatus.OPTIMAL for each in answers)
    assert "rank 0" in " ".join(answers[0].assumptions)


def test_replicas_have_buckets_beside_whole_states() -> None:
    _, found = profiled()
    request = PlanRequest(profile=found, budget=Budget(bytes=2**40))
    alone, beside, views = (
        plan(replace(request, parallelism=ways))
        for ways in (fsdp2(1), ddp(2), ddp(2, gradient_as_bucket_view=True))
    )
    gradients = sum(block.gradient_bytes for block in found.blocks)
    assert beside.floor_bytes == alone.floor_bytes + gradients
    assert alone.floor_bytes <= views.floor_bytes <= beside.floor_bytes
    highest = [max(each.peak_bytes for each in every.moments) for every in (alone, beside)]
    assert highest[1] - highest[0] == gradients
    optimizer = [every.moments[-1].peak_bytes for every in (alone, views)]
    assert optimizer[0] == optimizer[1]
    said = " ".join(beside.assumptions)
    assert "stand beside the gradients" in said
    assert "a GPU (H200, NCCL) had the first ones beside them then: keep" in said


def test_a_gpus_replicas_have_the_first_buckets_beside_the_second_as_executed() -> None:
    workload, found = profiled()
    gradients = sum(block.gradient_bytes for block in found.blocks)
    request = PlanRequest(profile=found, budget=Budget(bytes=2**40), parallelism=ddp(2))
    on_cpu = plan(request)
    on_gpu = plan(replace(request, profile=replace(found, device="NVIDIA H200")))
    assert on_gpu.floor_bytes == on_cpu.floor_bytes + gradients
    assert "more are counted" in " ".join(on_gpu.assumptions)
    peaks = [certify(workload, each).observed_peak_bytes for each in (on_cpu, on_gpu)]
    assert peaks[1] == peaks[0] + gradients <= (on_gpu.predicted_peak_bytes or 0)


def test_mixed_precision_needs_shards_and_a_profile_of_it() -> None:
    _, found = profiled()
    mixed = replace(found, precision=MIXED)
    asked = PlanRequest(profile=mixed, budget=Budget(bytes=2**40), parallelism=fsdp2(8))
    cases = {
        "parallelism.world_size": replace(asked, parallelism=ddp(8)),
        "training.precision": replace(asked, training=Training(precision=Precision.BF16)),
        "training.reduce_type": replace(asked, training=Training(reduce_type=NumberType.FP16)),
        "profile.precision": replace(asked, profile=replace(found, precision=Precision.BF16)),
    }
    for field, request in cases.items():
        with pytest.raises(InvalidRequestError) as caught:
            plan(request)
        assert caught.value.violations[0].field == field
    unlike = replace(asked, profile=found, training=Training(precision=MIXED))
    with pytest.raises(InvalidRequestError, match="profile it with precision FP32_BF16_COMPUTE"):
        plan(unlike)
    workload = workload_of()
    for given in (Precision.BF16, "bf16"):
        with pytest.raises(NotSupportedError, match=r"precision BF16: .* build the model in that"):
            profile(workload, precision=given)
    for strange in ("fp8", 16, None):
        with pytest.raises(InvalidRequestError, match="give 'fp32-bf16-compute' for") as wrong:
            profile(workload, precision=strange)  # type: ignore[arg-type] # that is the point
        assert wrong.value.field == "precision"
    model: Any = workload.model
    with pytest.raises(NotSupportedError, match=r"wte\.weight is stored as bfloat16"):
        profile(replace(workload, model=model.bfloat16()), precision=MIXED)


def test_a_parameter_of_two_blocks_cannot_be_sharded() -> None:
    model: Any = workload_of().model
    model.h[2].wide.weight = model.h[1].wide.weight
    parts = divided(model, {f"h.{place}": model.h[place] for place in range(BLOCKS)})
    assert [name for name, parameters in parts.items() if not parameters] == ["h.1", "h.2"]
    _, found = profiled()
    blocks = [replace(each, parameters=parts.get(each.name, ())) for each in found.blocks]
    asked = PlanRequest(
        profile=replace(found, blocks=tuple(blocks)),
        budget=Budget(bytes=2**40),
        parallelism=fsdp2(2),
    )
    with pytest.raises(
        InvalidRequestError, match=r"h\.1 has parameters .* another block"
    ) as caught:
        plan(asked)
    assert caught.value.violations[0].field == "profile.blocks[2].parameters"


@pytest.mark.parametrize(
    ("parallelism", "named"),
    [
        (Parallelism(world_size=8, sharding=Sharding.ZERO_2), "sharding: .* for ZERO_2"),
        (fsdp2(8, tp=2), "tp: .* for tp 2"),
        (fsdp2(8, gradient_as_bucket_view=True), "gradient_as_bucket_view: .*DistributedData"),
        (ddp(8, prefetch_units=1), "prefetch_units: .* of FSDP2"),
        (fsdp2(8, dp_replicate=8), "dp_replicate: .* for FSDP2 with 8 replicas of one shard"),
        (Parallelism(gradient_as_bucket_view=True), "gradient_as_bucket_view: .* several ranks"),
        (Parallelism(reshard_after_forward=False), "reshard_after_forward: .* of FSDP2"),
        (Parallelism(sharding=Sharding.FSDP2), "sharding: .* give their number too"),
    ],
)
def test_other_ways_to_spread_are_refused(parallelism: Parallelism, named: str) -> None:
    workload, found = profiled()
    saved = Plan(actions=(BlockAction(block="h.0", option="save"),))
    asked = PlanRequest(profile=found, budget=Budget(bytes=2**40), parallelism=parallelism)
    ways: list[Callable[[], Any]] = [
        lambda: plan(asked),
        lambda: certify(workload, saved, parallelism=parallelism),
    ]
    for way in ways:
        with pytest.raises(
            (NotSupportedError, InvalidRequestError), match=rf"^parallelism\.{named}"
        ):
            way()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"reshard_ranks": 3}, "cannot be resharded to 3 of 8 ranks"),
        ({"reshard_ranks": 2, "reshard_after_forward": False}, "give one of both"),
    ],
)
def test_ranks_that_units_cannot_be_resharded_to(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as caught:
        spread_of(fsdp2(8, **settings))
    assert caught.value.violations[0].field == "parallelism.reshard_ranks"
