"""Whatever goes wrong ends in a status with details, and never in a traceback."""

import logging
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.servers import PATIENCE_S, fixed_estimate, served

from haversack import Client, InternalError, InvalidRequestError, NotSupportedError, status
from haversack.errors import HaversackError
from haversack.v1 import common_pb2, estimate_pb2, plan_pb2
from haversack_server.service.app import Running
from haversack_server.service.rooms import Rooms

SECRET = "the secret of the room"


def broken_plan(request: Any, cancel: Any) -> NoReturn:
    raise ZeroDivisionError(SECRET)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served(rooms=Rooms(estimate=fixed_estimate, plan=broken_plan)) as running:
        yield running


@pytest.fixture(scope="module")
def channel(running: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.target) as channel:
        yield channel


def failure_of(channel: grpc.Channel, method: str, data: bytes) -> Any:
    """Send bytes as they are; gives the call that failed."""
    call: Any = channel.unary_unary(f"/haversack.v1.HaversackService/{method}")
    with pytest.raises(grpc.RpcError) as caught:
        call(data, timeout=PATIENCE_S)
    return caught.value


def details_of(failure: Any) -> status_pb2.Status:
    trailers = dict(failure.trailing_metadata())
    return status_pb2.Status.FromString(trailers[status.DETAILS_KEY])


def detail(found: status_pb2.Status, kind: Any) -> Any:
    message = kind()
    assert any(each.Unpack(message) for each in found.details)
    return message


def unreadable(data: bytes) -> bool:
    try:
        plan_pb2.PlanRequest.FromString(data)
    except Exception:
        return True
    return False


@given(data=st.binary(min_size=1, max_size=40).filter(unreadable))
def test_bytes_that_are_no_message_are_an_invalid_argument(
    channel: grpc.Channel, data: bytes
) -> None:
    failure = failure_of(channel, "Plan", data)
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failure.details() == "the bytes are not a PlanRequest message; send one"


@given(data=st.binary(max_size=40))
def test_no_bytes_at_all_are_a_fault_of_the_server(channel: grpc.Channel, data: bytes) -> None:
    call: Any = channel.unary_unary("/haversack.v1.HaversackService/Estimate")
    answered = call.future(data, timeout=PATIENCE_S)
    expected = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert answered.code() in expected, data


def test_a_violation_travels_with_its_field_and_the_service_that_found_it(
    channel: grpc.Channel,
) -> None:
    message = plan_pb2.PlanRequest(
        candidates=plan_pb2.Candidates(size_bytes=[3, 0], gain=[1, 1]),
        budget=common_pb2.Budget(bytes=4),
    )
    found = details_of(failure_of(channel, "Plan", message.SerializeToString()))
    info = detail(found, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("INVALID_REQUEST", "haversack")
    (violation,) = detail(found, error_details_pb2.BadRequest).field_violations
    assert violation.field == "candidates.size_bytes[1]"
    assert violation.description == "0 is too small; 1 or more would do"


@pytest.mark.parametrize("name", ["x", "\N{SNOWMAN}"])
def test_however_many_violations_there_are_their_status_arrives(
    channel: grpc.Channel, name: str
) -> None:
    message = plan_pb2.PlanRequest(
        candidates=plan_pb2.Candidates(size_bytes=[0] * 5_000, gain=[1] * 5_000),
        budget=common_pb2.Budget(bytes=4),
        documents=[common_pb2.Document(name=name * 1000)] * 1000,
    )
    data = message.SerializeToString()
    for _ in range(20):  # gRPC drops larger trailers at random
        failure = failure_of(channel, "Plan", data)
        assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
        info = detail(details_of(failure), error_details_pb2.ErrorInfo)
        assert info.metadata["violations_total"] == "5000"


def test_a_fault_of_the_server_has_an_id_and_the_log_has_the_rest(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(running.target) as client, pytest.raises(InternalError) as caught:
        client.plan_candidates(size_bytes=[1], gain=[1], budget_bytes=1)
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    error_id = record.__dict__["error_id"]
    assert str(caught.value) == f"a fault of the server; its log has it under the id {error_id}"
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])


def test_a_method_that_is_not_there_is_not_supported(running: Running) -> None:
    with grpc.insecure_channel(running.target) as channel:
        failure = failure_of(channel, "Fly", b"")
    assert failure.code() is grpc.StatusCode.UNIMPLEMENTED
    error = status.error_of("UNIMPLEMENTED", failure.details(), None)
    assert isinstance(error, NotSupportedError)


def test_a_message_above_the_limit_is_refused_before_it_is_sent(running: Running) -> None:
    document = {"model_type": "llama", "padding": "x" * 2**20}
    with Client(running.target) as client, pytest.raises(InvalidRequestError) as caught:
        client.estimate(model=document)
    assert caught.value.field == "documents[0].text"


@pytest.mark.parametrize("size", [20_000, 64_000])
def test_metadata_that_is_too_large_is_refused_by_grpc_and_the_server_lives(
    channel: grpc.Channel, size: int
) -> None:
    call: Any = channel.unary_unary("/haversack.v1.HaversackService/Estimate")
    data = estimate_pb2.EstimateRequest(parameter_count=3).SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        call(data, timeout=PATIENCE_S, metadata=[("x-large", "x" * size)])
    failure: Any = caught.value
    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    answer = estimate_pb2.EstimateResponse.FromString(call(data, timeout=PATIENCE_S))
    assert answer.steady_bytes == 3


def test_every_error_of_ours_has_a_status_that_grpc_knows() -> None:
    for each in HaversackError.__subclasses__():
        assert each.status in grpc.StatusCode.__members__
