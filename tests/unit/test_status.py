"""Errors travel as statuses and arrive as themselves, however many fields are at fault."""

import importlib
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2

from haversack import status
from haversack.errors import (
    DeadlineError,
    HaversackError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
    Violation,
)

CLASSES = [
    value
    for value in vars(importlib.import_module("haversack.errors")).values()
    if isinstance(value, type) and issubclass(value, HaversackError) and value is not HaversackError
]


def travelled(error: HaversackError) -> HaversackError:
    details = status.status_of(error).SerializeToString()
    return status.error_of(error.status, "what gRPC itself says", details)


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_arrives_as_its_class_with_its_sentence(error_class: Any) -> None:
    arrived = travelled(error_class("a sentence"))
    assert type(arrived) is error_class
    assert str(arrived) == "a sentence"


def test_violations_arrive_with_their_fields() -> None:
    violations = (Violation("training.seq", "too small"), Violation("parallelism.tp", "too large"))
    arrived = travelled(InvalidRequestError(violations=violations))
    assert isinstance(arrived, InvalidRequestError)
    assert arrived.violations == violations
    assert str(arrived) == "training.seq: too small (and 1 more)"


def test_the_time_to_come_back_arrives() -> None:
    arrived = travelled(OverloadedError("busy", retry_after_ns=1_500_000_001))
    assert isinstance(arrived, OverloadedError)
    assert arrived.retry_after_ns == 1_500_000_001


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\N{GRINNING FACE}"])
def test_details_stay_small_and_tell_how_many_there_were(character: str) -> None:
    violations = [
        Violation(f"candidates.size_bytes[{at}]{character * 500}", character * 10_000)
        for at in range(1000)
    ]
    error = InvalidRequestError(violations=violations)
    sent = status.status_of(error)
    assert sent.ByteSize() <= status.MOST_DETAIL_BYTES
    info = error_details_pb2.ErrorInfo()
    sent.details[0].Unpack(info)
    assert info.metadata["violations_total"] == "1000"
    arrived = travelled(error)
    assert isinstance(arrived, InvalidRequestError)
    assert arrived.field.startswith("candidates.size_bytes[0]")


def test_the_sentence_counts_violations_that_did_not_travel() -> None:
    error = InvalidRequestError(violations=[Violation(f"f[{at}]", "no" * 90) for at in range(9999)])
    arrived = travelled(error)
    assert str(arrived).endswith("(and 9998 more)")
    assert isinstance(arrived, InvalidRequestError)
    assert arrived.total == 9999


def test_a_reason_is_the_class_in_capitals() -> None:
    assert status.reason_of(InvalidRequestError) == "INVALID_REQUEST"
    assert status.reason_of(NotFoundError) == "NOT_FOUND"
    assert len({status.reason_of(each) for each in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        ("UNAVAILABLE", UnavailableError),
        ("DEADLINE_EXCEEDED", DeadlineError),
        ("INTERNAL", InternalError),
        ("UNKNOWN", HaversackError),
        ("DATA_LOSS", HaversackError),
    ],
)
def test_without_details_the_status_decides(code: str, error_class: type) -> None:
    arrived = status.error_of(code, "said gRPC", None)
    assert type(arrived) is error_class
    assert str(arrived) == "said gRPC"


def test_details_of_a_stranger_are_not_ours() -> None:
    sent = status_pb2.Status(message="theirs")
    sent.details.add().Pack(error_details_pb2.ErrorInfo(reason="NOT_FOUND", domain="proxy.example"))
    arrived = status.error_of("UNAVAILABLE", "no route", sent.SerializeToString())
    assert type(arrived) is UnavailableError
    assert str(arrived) == "no route"


def test_a_reason_of_a_newer_server_falls_back_to_the_status() -> None:
    sent = status_pb2.Status(message="something new")
    info = error_details_pb2.ErrorInfo(reason="BRAND_NEW", domain=status.DOMAIN)
    sent.details.add().Pack(info)
    arrived = status.error_of("NOT_FOUND", "", sent.SerializeToString())
    assert type(arrived) is NotFoundError
    assert str(arrived) == "something new"


def test_details_that_are_none_leave_the_status() -> None:
    arrived = status.error_of("UNAVAILABLE", "no route", b"\xff\xff")
    assert type(arrived) is UnavailableError
