"""A message that breaks rules is refused with every broken rule, each under its own path."""

import pytest

from haversack import wire
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.plan import Plan, PlanRequest
from haversack.run import Unit
from haversack.v1 import common_pb2, estimate_pb2, plan_pb2, verify_pb2
from haversack.verify import VerifyRequest


def fields_refused(noun_class: type, message: object) -> list[str]:
    with pytest.raises(InvalidRequestError) as caught:
        wire.from_message(noun_class, message)  # type: ignore[arg-type]
    return [violation.field for violation in caught.value.violations]


def test_a_column_is_refused_at_its_place() -> None:
    message = plan_pb2.PlanRequest(
        candidates=plan_pb2.Candidates(size_bytes=[1, 0, 2, -1], gain=[1, 1, 1, 1]),
        budget=common_pb2.Budget(bytes=4),
    )
    assert fields_refused(PlanRequest, message) == [
        "candidates.size_bytes[1]",
        "candidates.size_bytes[3]",
    ]


def test_violations_of_all_nested_nouns_are_raised_together() -> None:
    message = estimate_pb2.EstimateRequest(
        parameter_count=1,
        training=common_pb2.Training(microbatch=0, seq=-1),
        parallelism=common_pb2.Parallelism(tp=0),
        device=common_pb2.Device(memory_bytes=0),
    )
    assert fields_refused(EstimateRequest, message) == [
        "training.microbatch",
        "training.seq",
        "parallelism.tp",
        "device.memory_bytes",
    ]


def test_a_noun_in_a_list_is_named_with_its_index() -> None:
    variation = estimate_pb2.WhatIf(name="b", training=common_pb2.Training(seq=0))
    message = estimate_pb2.EstimateRequest(
        parameter_count=1, what_ifs=[estimate_pb2.WhatIf(name="a"), variation, variation]
    )
    assert fields_refused(EstimateRequest, message) == [
        "what_ifs[1].training.seq",
        "what_ifs[2].training.seq",
    ]


def test_an_unknown_number_of_an_enum_is_refused_at_its_field() -> None:
    message = estimate_pb2.EstimateRequest(parameter_count=1)
    message.training.precision = 99  # type: ignore[assignment]
    with pytest.raises(InvalidRequestError, match="99 is no Precision") as caught:
        wire.from_message(EstimateRequest, message)
    assert caught.value.field == "training.precision"


def test_an_unknown_number_in_a_list_of_enums_is_named_with_its_index() -> None:
    message = verify_pb2.VerifyRequest(waivers=[1, 99])  # type: ignore[list-item]
    assert fields_refused(VerifyRequest, message) == ["waivers[1]"]


def test_an_answer_from_a_newer_server_is_refused_too() -> None:
    message = plan_pb2.PlanResponse()
    message.status = 77  # type: ignore[assignment]
    assert fields_refused(Plan, message) == ["status"]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (EstimateRequest(parameter_count=1, kernel_profile=7), "kernel_profile"),  # type: ignore[arg-type]
        (EstimateRequest(parameter_count=1, kernel_profile="\ud800"), "kernel_profile"),
        (EstimateRequest(units=(Unit(name=b"\xff", parameter_count=1),)), "units[0].name"),  # type: ignore[arg-type]
    ],
    ids=["number for text", "lone surrogate", "bytes for text"],
)
def test_a_value_that_cannot_travel_is_refused_before_it_is_sent(
    request_: EstimateRequest, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        wire.message_of(request_)
    assert caught.value.field == field


def test_what_is_no_noun_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="str is not a noun"):
        wire.from_message(str, plan_pb2.PlanRequest())
