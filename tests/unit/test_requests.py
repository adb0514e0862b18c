"""Builders: keywords that people write become requests, and every wrong one names its field."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haversack.answer_files import write_plan
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest, WhatIf
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Candidates, Plan
from haversack.requests import estimate_request, plan_request, verify_request
from haversack.run import (
    Attention,
    BlockAction,
    Budget,
    BytesKind,
    DocumentFormat,
    Optimizer,
    StateBytes,
    Training,
    Unit,
)
from haversack.training import Precision
from haversack.verify import Facet, VerifyPlan, VerifySchedule, VerifyWorld

GIB = 2**30
COUNT: dict[str, Any] = {"parameter_count": 1000}


def fields_of(error: pytest.ExceptionInfo[InvalidRequestError]) -> list[str]:
    return [violation.field for violation in error.value.violations]


def test_nothing_is_assumed_that_was_not_given() -> None:
    request = estimate_request(parameter_count=1000)
    assert request.training == Training()
    assert request.parallelism.sharding is Sharding.UNSPECIFIED
    assert request.budget is None
    assert request.device.memory_bytes is None


@pytest.mark.parametrize(
    ("zero", "sharding"),
    [
        (0, Sharding.REPLICATED),
        (1, Sharding.ZERO_1),
        (2, Sharding.ZERO_2),
        (3, Sharding.ZERO_3),
    ],
)
def test_a_zero_stage_is_a_sharding(zero: int, sharding: Sharding) -> None:
    assert estimate_request(**COUNT, zero=zero).parallelism.sharding is sharding


def test_fsdp_is_fsdp2() -> None:
    assert estimate_request(**COUNT, fsdp=True).parallelism.sharding is Sharding.FSDP2


def test_names_of_enums_are_lower_case_with_dashes_or_members() -> None:
    request = estimate_request(**COUNT, optimizer="adamw-foreach", attention=Attention.EAGER)
    assert request.training.optimizer is Optimizer.ADAMW_FOREACH
    assert request.training.attention is Attention.EAGER
    assert estimate_request(**COUNT, optimizer="SGD_MOMENTUM").training.optimizer is (
        Optimizer.SGD_MOMENTUM
    )


def test_sizes_are_bytes_or_text() -> None:
    request = estimate_request(**COUNT, gpu_memory="80GiB", budget=60 * GIB, budget_kind="device")
    assert request.device.memory_bytes == 80 * GIB
    assert request.budget == Budget(bytes=60 * GIB, kind=BytesKind.DEVICE)
    assert estimate_request(**COUNT, budget=Budget(bytes=5)).budget == Budget(bytes=5)


@pytest.mark.parametrize(
    "given",
    ["4GiB,4GiB,8GiB", [4 * GIB, "4GiB", "8GiB"], (4 * GIB, 4 * GIB, 8 * GIB)],
)
def test_state_bytes_are_three_sizes(given: Any) -> None:
    assert estimate_request(state_bytes=given).state_bytes == StateBytes(
        parameter_bytes=4 * GIB, gradient_bytes=4 * GIB, optimizer_bytes=8 * GIB
    )


def test_more_units_than_an_answer_can_hold_are_refused() -> None:
    one = Unit(name="a", parameter_count=1)
    with pytest.raises(InvalidRequestError, match="10001 units are too many; at most 10000"):
        EstimateRequest(units=(one,) * 10_001)
    assert len(EstimateRequest(units=(one,) * 10_000).units) == 10_000


def test_units_are_nouns_or_mappings() -> None:
    one = Unit(name="a", parameter_count=3)
    request = estimate_request(units=[one, {"name": "b", "parameter_count": 4}])
    assert request.units == (one, Unit(name="b", parameter_count=4))


def test_a_model_is_a_path_a_folder_or_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('\ufeff{"model_type": "llama"}', encoding="utf-8")
    for model in (tmp_path / "config.json", str(tmp_path), {"model_type": "llama"}):
        (document,) = estimate_request(model=model).documents
        assert document.format is DocumentFormat.HF_CONFIG
        assert document.name == "config.json"
        assert document.text == '{"model_type": "llama"}'


def test_equal_files_make_equal_requests_wherever_they_lie(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    assert estimate_request(model=tmp_path / "a") == estimate_request(model=tmp_path / "b")


def test_actions_are_a_plan_s() -> None:
    action = BlockAction(block="layers.0", option="recompute")
    assert estimate_request(**COUNT, actions=[action]).training.actions == (action,)


def test_a_variation_changes_what_it_names() -> None:
    given = WhatIf(name="as it is")
    request = estimate_request(
        **COUNT, what_ifs=[given, {"name": "small", "microbatch": 1, "gpu_memory": "40GiB"}]
    )
    first, second = request.what_ifs
    assert first is given
    assert second.name == "small"
    assert second.training == Training(microbatch=1)
    assert second.parallelism is None
    assert second.device is not None
    assert second.device.memory_bytes == 40 * GIB


def test_candidates_are_nouns_or_columns_of_any_kind() -> None:
    noun = Candidates(size_bytes=(3, 2), gain=(5, 3))
    columns = {"size_bytes": np.array([3, 2]), "gain": [5, 3]}
    for given in (noun, columns):
        assert plan_request(candidates=given, budget=4).candidates == noun


def test_numpy_s_whole_numbers_are_whole_numbers() -> None:
    four: Any = np.int64(4)  # typed as what it passes for
    three: Any = np.int8(3)
    units = [{"name": "a", "parameter_count": np.int32(3)}]
    request: Any = estimate_request(
        units=units, gpus=four, zero=three, seq=four, budget=four, gpu_memory=four * 2**30
    )
    assert request == estimate_request(
        units=[{"name": "a", "parameter_count": 3}],
        gpus=4,
        zero=3,
        seq=4,
        budget=4,
        gpu_memory=4 * 2**30,
    )
    assert type(request.parallelism.world_size) is int
    columns: Any = {"size_bytes": [np.int64(3), 2], "gain": [5, np.int16(3)], "fixed_bytes": four}
    planned = plan_request(candidates=columns, budget=4).candidates
    assert planned is not None
    assert planned == Candidates(size_bytes=(3, 2), gain=(5, 3), fixed_bytes=4)
    assert set(map(type, planned.size_bytes)) == {int}
    assert verify_request(workload="mlp", seed=four).seed == 4


@pytest.mark.parametrize(
    "value", [np.float64(4), np.bool_(True), np.array([4]), True, 4.0, "4", Sharding.FSDP2]
)
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="not an integer") as caught:
        estimate_request(**COUNT, gpus=value)
    assert caught.value.field == "parallelism.world_size"


@pytest.mark.parametrize("column", [5, None, np.array(5), "12", b"12", {1: 2}])
def test_a_column_that_is_no_list_is_refused(column: Any) -> None:
    with pytest.raises(InvalidRequestError, match="is not a list"):
        plan_request(candidates={"size_bytes": column, "gain": [1]}, budget=4)
    with pytest.raises(InvalidRequestError, match="is not a list of whole numbers"):
        Candidates(size_bytes=column, gain=(1,))


def test_an_integer_of_more_digits_than_python_writes_is_refused_in_a_sentence() -> None:
    huge = 10**5000
    for keyword in ("gpus", "zero", "gpu_memory", "budget", "seq"):
        keywords: Any = {keyword: huge}
        with pytest.raises(InvalidRequestError, match="a number of thousands of digits"):
            estimate_request(**COUNT, **keywords)
    with pytest.raises(InvalidRequestError, match="a number of thousands of digits"):
        plan_request(candidates={"size_bytes": [huge], "gain": [1.5]}, budget=4)


def test_the_mirror_form_has_a_keyword_of_its_own() -> None:
    table = {"freed_bytes": [3], "added_ns": (5,), "names": ["a"], "used_bytes": 9}
    request = plan_request(recompute_candidates=table, budget=4, frontier_points=0)
    assert request.recompute_candidates is not None
    assert request.recompute_candidates.names == ("a",)
    assert request.frontier_points == 0


def test_a_verify_job_of_a_built_in_workload_and_of_an_entry_point() -> None:
    assert verify_request(workload="mlp").workload.name == "mlp"
    request = verify_request(
        workload="mypkg.models:build",
        args={"layers": 2},
        waive=["buffers", Facet.RNG],
        deadline=2.5,
        memory="4GiB",
        schedule="two-steps",
        regions=["h.0"],
        early_stop=False,
    )
    assert request.workload.entry_point == "mypkg.models:build"
    assert request.workload.args_json == '{"layers": 2}'
    assert request.waivers == (Facet.BUFFERS, Facet.RNG)
    assert request.limits.deadline_ns == 2_500_000_000
    assert request.limits.memory_bytes == 4 * GIB
    assert request.schedule is VerifySchedule.TWO_STEPS
    assert request.regions == ("h.0",)
    assert request.early_stop is False


def test_a_plan_is_verified_by_its_actions(tmp_path: Path) -> None:
    action = BlockAction(block="h.0", option="recompute")
    plan = Plan(actions=(action,), predicted_peak_bytes=17, extra_ns=5)
    expected = VerifyPlan(actions=(action,), predicted_peak_bytes=17, predicted_extra_ns=5)
    assert verify_request(workload="mlp", plan=plan).plan == expected
    assert verify_request(workload="mlp", plan=expected).plan == expected
    write_plan(plan, tmp_path / "plan.json")
    assert verify_request(workload="mlp", plan=tmp_path / "plan.json").plan == expected


def test_a_plan_of_ranks_that_can_be_run_is_verified_on_as_many() -> None:
    action = BlockAction(block="h.0", option="recompute")
    plan = Plan(actions=(action,), parallelism=Parallelism(world_size=4, sharding=Sharding.FSDP2))
    asked = verify_request(workload="mlp", plan=plan)
    assert asked.world == VerifyWorld(size=4, sharding=Sharding.FSDP2)
    replicas = replace(plan, parallelism=Parallelism(world_size=2), precision=Precision.BF16)
    asked = verify_request(workload="mlp", plan=replicas)
    assert asked.world == VerifyWorld(size=2, sharding=Sharding.REPLICATED)
    assert asked.plan is not None
    assert (asked.plan.parallelism, asked.plan.precision) == (replicas.parallelism, Precision.BF16)
    with pytest.raises(InvalidRequestError, match=r"for 2 ranks under Dist.*, and the job is on"):
        verify_request(workload="mlp", plan=replicas, shard="fsdp2", world_size=2)


def test_a_plan_of_several_ranks_is_verified_on_ranks() -> None:
    ranks = Parallelism(world_size=8, sharding=Sharding.FSDP2)
    plan = Plan(actions=(BlockAction(block="h.0", option="recompute"),), parallelism=ranks)
    with pytest.raises(InvalidRequestError, match="for 8 ranks under FSDP2") as refused:
        verify_request(workload="mlp", plan=plan)
    assert refused.value.field == "plan"
    asked = verify_request(workload="mlp", plan=plan, shard="fsdp2", world_size=2)
    assert asked.plan is not None
    assert asked.plan.actions == plan.actions
    replicas = replace(plan, parallelism=Parallelism(world_size=8))
    with pytest.raises(InvalidRequestError, match="on ranks, with --shard ddp --world-size"):
        verify_request(workload="mlp", plan=replicas)
    with pytest.raises(InvalidRequestError, match="on ranks under FSDP2; verify it on ranks"):
        verify_request(workload="mlp", plan=replicas, shard="fsdp2", world_size=2)


def test_ranks_of_a_job_are_named_by_how_they_share_the_model() -> None:
    assert verify_request(workload="mlp").world is None
    asked = verify_request(workload="mlp", shard="ddp", world_size=2)
    assert asked.world == VerifyWorld(size=2, sharding=Sharding.REPLICATED)
    asked = verify_request(workload="mlp", shard=Sharding.FSDP2, world_size=4)
    assert asked.world == VerifyWorld(size=4, sharding=Sharding.FSDP2)


WRONG_RUNS: list[tuple[dict[str, Any], str]] = [
    ({"gpus": True}, "parallelism.world_size"),
    ({"gpus": 8.0}, "parallelism.world_size"),
    ({"tp": "2"}, "parallelism.tp"),
    ({"zero": True}, "parallelism.sharding"),
    ({"zero": 4}, "parallelism.sharding"),
    ({"zero": 1, "fsdp": True}, "parallelism.sharding"),
    ({"fsdp": 1}, "parallelism.sharding"),
    ({"sequence_parallel": 1}, "parallelism.sequence_parallel"),
    ({"seq": float("nan")}, "training.seq"),
    ({"microbatch": 0}, "training.microbatch"),
    ({"precision": 1}, "training.precision"),
    ({"optimizer": "adam"}, "training.optimizer"),
    ({"attention": Optimizer.ADAMW}, "training.attention"),
    ({"gpu_memory": 80.5}, "device.memory_bytes"),
    ({"gpu_memory": "80 GBit"}, "device.memory_bytes"),
    ({"budget": -1}, "budget.bytes"),
    ({"budget": True}, "budget.bytes"),
    ({"budget_kind": "device"}, "budget.kind"),
    ({"budget": Budget(bytes=1), "budget_kind": "device"}, "budget.kind"),
    ({"kernel_profile": 3}, "kernel_profile"),
    ({"units": "a"}, "units"),
    ({"units": []}, "units"),
    ({"units": [{}]}, "units[0].parameter_count"),
    ({"state_bytes": "1,2"}, "state_bytes"),
    ({"state_bytes": [1, 2, -3]}, "state_bytes.optimizer_bytes"),
    ({"state_bytes": 7}, "state_bytes"),
    ({"model": {"size": float("nan")}}, "documents[0].text"),
    ({"model": {"size": object()}}, "documents[0].text"),
    ({"model": "no\0path"}, "documents[0].text"),
    ({"model": "long" * 2000}, "documents[0].text"),
    ({"model": 7}, "documents[0].text"),
    ({"model": b"config.json"}, "documents[0].text"),
    ({"what_ifs": [{"name": "x", "tp": 0}]}, "what_ifs[0].parallelism.tp"),
    ({"what_ifs": [{"name": 1}]}, "what_ifs[0].name"),
    ({"what_ifs": [{"model": "x"}]}, "what_ifs[0].model"),
    ({"what_ifs": ["zero=2"]}, "what_ifs[0]"),
]


@pytest.mark.parametrize(("keywords", "field"), WRONG_RUNS)
def test_a_wrong_keyword_names_its_field(keywords: dict[str, Any], field: str) -> None:
    subjects = ("units", "state_bytes", "model")
    subject = {} if any(name in keywords for name in subjects) else COUNT
    with pytest.raises(InvalidRequestError) as error:
        estimate_request(**subject, **keywords)
    assert fields_of(error) == [field]


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"candidates": [3, 2]}, "candidates"),
        ({"candidates": {"size_bytes": "32", "gain": [1]}}, "candidates.size_bytes"),
        ({"candidates": {"size_bytes": [1], "gain": [True]}}, "candidates.gain[0]"),
        ({"candidates": {"size_bytes": [1], "gain": [1], "x": 1}}, "candidates.x"),
        ({"recompute_candidates": {"freed_bytes": [1]}}, "recompute_candidates.added_ns"),
        ({**COUNT, "fit_expected": "yes"}, "fit_expected"),
        ({"model": {}, "recompute": "full"}, "training.recompute"),
        ({"model": {}, "state_limit": 0}, "state_limit"),
    ],
)
def test_a_wrong_plan_names_its_field(keywords: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        plan_request(**keywords, budget=4)
    assert field in fields_of(error)


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"workload": 7}, "workload.name"),
        ({"workload": ""}, "workload.name"),
        ({"workload": "a:"}, "workload.entry_point"),
        ({"workload": "mlp", "args": "[]"}, "workload.args_json"),
        ({"workload": "mlp", "args": {"a": float("inf")}}, "workload.args_json"),
        ({"workload": "mlp", "deadline": float("nan")}, "limits.deadline_ns"),
        ({"workload": "mlp", "deadline": True}, "limits.deadline_ns"),
        ({"workload": "mlp", "memory": "much"}, "limits.memory_bytes"),
        ({"workload": "mlp", "waive": "buffers"}, "waivers"),
        ({"workload": "mlp", "waive": ["colour"]}, "waivers[0]"),
        ({"workload": "mlp", "schedule": "never"}, "schedule"),
        ({"workload": "mlp", "shard": "zero", "world_size": 2}, "world.sharding"),
        ({"workload": "mlp", "shard": 2, "world_size": 2}, "world.sharding"),
        ({"workload": "mlp", "shard": "ddp"}, "world.size"),
        ({"workload": "mlp", "world_size": 2}, "world.sharding"),
        ({"workload": "mlp", "shard": "ddp", "world_size": 2.0}, "world.size"),
        ({"workload": "mlp", "seed": 1.0}, "seed"),
    ],
)
def test_a_wrong_job_names_its_field(keywords: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        verify_request(**keywords)
    assert fields_of(error)[0] == field


def test_all_wrong_parts_are_told_at_once() -> None:
    with pytest.raises(InvalidRequestError) as error:
        estimate_request(parameter_count=1, seq=0, tp=0, gpu_memory="x", budget="y")
    assert fields_of(error) == [
        "training.seq",
        "parallelism.tp",
        "device.memory_bytes",
        "budget.bytes",
    ]


@pytest.mark.parametrize(
    ("build", "keywords"),
    [
        (estimate_request, {"parameter_count": 1, "gpu": 8}),
        (plan_request, {"parameter_count": 1, "what_ifs": []}),
        (verify_request, {"workload": "mlp", "sede": 1}),
    ],
)
def test_a_misspelt_keyword_is_a_type_error(build: Any, keywords: Mapping[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{build.__name__}.. got an unexpected keyword argument"):
        build(**keywords)


def test_every_sentence_of_a_builder_ends_with_what_would_do() -> None:
    with pytest.raises(InvalidRequestError, match="use one of adamw, adamw-foreach, sgd"):
        estimate_request(**COUNT, optimizer="adam")
    with pytest.raises(InvalidRequestError, match="give 0, 1, 2 or 3"):
        estimate_request(**COUNT, zero=7)


def test_a_bare_number_that_can_be_no_device_s_memory_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="80 bytes are no device's memory; write 80GiB"):
        estimate_request(parameter_count=1, gpu_memory="80")
