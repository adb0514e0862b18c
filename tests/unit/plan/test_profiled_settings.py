"""Settings that a profiled step cannot follow: refused with what would do, before a profile."""

import asyncio
from typing import Any

import pytest
from tests.unit.plan.test_profiled import PROFILE

from haversack.errors import HaversackError
from haversack.requests import plan_request
from haversack_server import planner as planner_module
from haversack_server.plan.answer import plan
from haversack_server.plan.profiled_settings import will_be_mixed
from haversack_server.planner import Planner

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"precision": "bf16"}, r"training\.precision: .*own code, and BF16 .*; leave it out"),
    ({"precision": "fp32-bf16-compute"}, r"training\.precision: .*--gpus N --fsdp"),
    ({"precision": "fp32-bf16-compute", "gpus": 8}, r"training\.precision: .*--gpus N --fsdp"),
    ({"reduce_type": "bf16"}, r"training\.reduce_type: .*--precision fp32-bf16-compute"),
    ({"reduce_type": "fp32", "gpus": 8, "fsdp": True}, r"training\.reduce_type: .*--precision"),
    ({"gradient_as_bucket_view": True}, r"parallelism\.gradient_as_bucket_view: .*--gpus N"),
    ({"fsdp": True}, r"parallelism\.sharding: .*--gpus N"),
    ({"reshard_after_forward": False}, r"parallelism\.reshard_after_forward: .*--fsdp"),
    ({"reshard_after_forward": 4, "gpus": 8}, r"parallelism\.reshard_ranks: .*--fsdp"),
    ({"zero": 3, "gpus": 8}, r"parallelism\.sharding: .* not planned for ZERO_3"),
    ({"budget_kind": "device"}, r"budget\.kind: .* give allocated bytes"),
]


@pytest.mark.parametrize(("keywords", "sentence"), REFUSED)
def test_what_a_profile_cannot_follow_is_refused_with_what_would_do(
    keywords: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(HaversackError, match=sentence):
        plan(plan_request(profile=PROFILE, budget=10**6, **keywords))


def test_mixed_precision_is_profiled_without_ranks_where_nothing_is_planned() -> None:
    asked: dict[str, Any] = {"workload": "pkg:build", "precision": "fp32-bf16-compute"}
    assert will_be_mixed(plan_request(**asked))
    assert will_be_mixed(plan_request(**asked, gpus=8, fsdp=True))
    assert not will_be_mixed(plan_request(**asked, gpus=8))
    assert not will_be_mixed(plan_request(**asked, budget=10**6))
    assert not will_be_mixed(plan_request(workload="pkg:build"))


def test_a_profile_alone_names_what_its_step_has_decided() -> None:
    request = plan_request(workload="pkg:build", seq=128, precision="fp32-bf16-compute")
    (ignored,) = planner_module._profiled(PROFILE, request).ignored_inputs
    assert ignored.startswith("training.seq: the profile is of the step as it ran")


@pytest.mark.parametrize(("keywords", "sentence"), REFUSED)
def test_it_is_refused_before_a_workload_is_profiled(
    keywords: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "check_workload", lambda *_: None)
    planner = Planner(("pkg",))
    monkeypatch.setattr(planner, "workers", None)  # asked for one, it would raise otherwise
    request = plan_request(workload="pkg:build", budget=10**6, **keywords)

    async def solve(_: object) -> Any:
        raise AssertionError("nothing is to be solved")

    with pytest.raises(HaversackError, match=sentence):
        asyncio.run(planner.plan(request, solve))


def test_what_changes_nothing_is_no_fault() -> None:
    plain = plan(plan_request(profile=PROFILE, budget=10**6))
    same = plan_request(profile=PROFILE, budget=10**6, offload="none", tp=1, zero=0)
    assert plan(same).actions == plain.actions


def test_what_a_profile_has_decided_is_named_with_what_would_do() -> None:
    request = plan_request(
        profile=PROFILE,
        budget=10**6,
        attention="eager",
        kernel_profile="hf-eager",
        gpu_memory="80GiB",
        fit_expected=True,
    )
    named = {each.partition(":")[0] for each in plan(request).ignored_inputs}
    assert named == {"training.attention", "kernel_profile", "device", "fit_expected"}
