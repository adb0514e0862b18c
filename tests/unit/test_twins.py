"""The two clients promise the same, and promise every call of the service."""

import inspect
import typing
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from haversack import AsyncClient, Client, _calls, connect, connect_async, wire
from haversack.v1 import service_pb2

PUBLIC = sorted(name for name in vars(Client) if not name.startswith("_"))
RPCS = {
    each.name: each
    for each in (
        _calls.ESTIMATE,
        _calls.PLAN,
        _calls.VERIFY,
        _calls.CANCEL_VERIFY,
        _calls.GET_VERIFY_JOB,
        _calls.LIST_VERIFY_JOBS,
        _calls.LIST_VERIFY_DEVICES,
        _calls.LIST_WORKLOADS,
    )
}
METHODS_OF = {
    "Estimate": {"estimate"},
    "Plan": {"plan", "plan_candidates", "plan_model"},
    "Verify": {"verify", "verify_events"},
    "CancelVerify": {"cancel_verify"},
    "GetVerifyJob": {"get_verify_job"},
    "ListVerifyJobs": {"list_verify_jobs"},
    "ListVerifyDevices": {"list_verify_devices"},
    "ListWorkloads": {"list_workloads"},
}


def answer_of(method: Any) -> Any:
    """What a method gives, where a generator of either kind is a stream of its elements."""
    hint = typing.get_type_hints(method)["return"]
    if typing.get_origin(hint) in (Generator, AsyncGenerator):
        return "stream", typing.get_args(hint)[0]
    return hint


def test_the_clients_have_the_same_methods() -> None:
    assert sorted(name for name in vars(AsyncClient) if not name.startswith("_")) == PUBLIC


@pytest.mark.parametrize("name", [*PUBLIC, "__init__"])
def test_a_method_takes_and_gives_the_same_in_both_clients(name: str) -> None:
    blocking, awaiting = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.signature(blocking).parameters == inspect.signature(awaiting).parameters
    assert answer_of(blocking) == answer_of(awaiting)
    assert inspect.getdoc(blocking) == inspect.getdoc(awaiting)


def test_the_functions_that_connect_take_the_same() -> None:
    assert inspect.signature(connect).parameters == inspect.signature(connect_async).parameters


def test_every_call_of_the_service_has_a_method() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["HaversackService"]
    assert set(RPCS) == set(METHODS_OF) == {each.name for each in service.methods}
    assert set().union(*METHODS_OF.values()) | {"close"} == set(PUBLIC)


def test_a_call_sends_and_takes_the_messages_of_the_schema() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["HaversackService"]
    for method in service.methods:
        rpc = RPCS[method.name]
        assert wire.MESSAGES[rpc.request].DESCRIPTOR.full_name == method.input_type.full_name
        assert wire.MESSAGES[rpc.answer].DESCRIPTOR.full_name == method.output_type.full_name


def test_every_call_has_a_deadline_unless_told_otherwise() -> None:
    for name in set(PUBLIC) - {"close"}:
        assert inspect.signature(getattr(Client, name)).parameters["timeout"].default > 0
