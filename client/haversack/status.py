"""Errors as google.rpc.Status, and back: what travels in the trailers of a failed call.

Details stay below 6 KiB, since gRPC drops larger trailers together with the status they explain;
``violations_total`` says how many fields were at fault. Knows nothing of calls and channels.
"""

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from haversack.errors import (
    HaversackError,
    InvalidRequestError,
    OverloadedError,
    Violation,
)

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "haversack"
MOST_DETAIL_BYTES = 6 * 1024
MOST_TEXT = 300  # characters of a sentence or a path, of which one field's value may be most


def reason_of(error_class: type[HaversackError]) -> str:
    """Spell a class as the reason of an ErrorInfo: InvalidRequestError is INVALID_REQUEST."""
    words = re.findall(r"[A-Z][a-z]*", error_class.__name__.removesuffix("Error"))
    return "_".join(words).upper()


def status_of(error: HaversackError) -> status_pb2.Status:
    """Write an error as the status that travels for it."""
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status), message=short(str(error)))
    info = error_details_pb2.ErrorInfo(reason=reason_of(type(error)), domain=DOMAIN)
    if isinstance(error, InvalidRequestError):
        info.metadata["violations_total"] = str(len(error.violations))
    status.details.add().Pack(info)
    if isinstance(error, OverloadedError):
        delay = Duration()
        delay.FromNanoseconds(error.retry_after_ns)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if isinstance(error, InvalidRequestError):
        room = MOST_DETAIL_BYTES - status.ByteSize() - 64  # the envelope of one more detail
        status.details.add().Pack(_bad_request(error, room))
    return status


def error_of(code: str, message: str, details: bytes | None) -> HaversackError:
    """Read a failed call as the error it travelled for.

    ``code`` is the name of the call's status and ``details`` the trailer, where there is one:
    without it gRPC itself failed the call, and only the status tells what happened.
    """
    status = _parsed(details or b"")
    info = next(_unpacked(status, error_details_pb2.ErrorInfo), None)
    if info is None or info.domain != DOMAIN:
        return _BY_STATUS.get(code, HaversackError)(message)
    error_class = _BY_REASON.get(info.reason) or _BY_STATUS.get(code, HaversackError)
    if error_class is InvalidRequestError:
        return _invalid_request(status, info.metadata.get("violations_total", ""))
    if error_class is OverloadedError:
        delays = _unpacked(status, error_details_pb2.RetryInfo)
        waits = [each.retry_delay.ToNanoseconds() for each in delays]
        return OverloadedError(status.message, retry_after_ns=waits[0] if waits else 0)
    return error_class(status.message)


def short(text: str) -> str:
    """Cut a text that would burst the trailers."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def _parsed(details: bytes) -> status_pb2.Status:
    try:
        return status_pb2.Status.FromString(details)
    except DecodeError:  # of a stranger on the way, who says nothing to us
        return status_pb2.Status()


def _bad_request(error: InvalidRequestError, room: int) -> error_details_pb2.BadRequest:
    """List the violations that fit into ``room`` bytes, the first of them in any case."""
    bad_request = error_details_pb2.BadRequest()
    for violation in error.violations:
        bad_request.field_violations.add(
            field=short(violation.field), description=short(violation.description)
        )
        if bad_request.ByteSize() > room:
            del bad_request.field_violations[-1]
            break
    return bad_request


def _invalid_request(status: status_pb2.Status, total: str) -> InvalidRequestError:
    violations = [
        Violation(each.field, each.description)
        for bad_request in _unpacked(status, error_details_pb2.BadRequest)
        for each in bad_request.field_violations
    ]
    error = InvalidRequestError(
        status.message, violations=violations, total=int(total) if total.isdecimal() else 0
    )
    error.args = (status.message,)  # it counts the violations that did not fit too
    return error


def _unpacked(status: status_pb2.Status, kind: type[Any]) -> Iterator[Any]:
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            yield message


def _classes(root: type[HaversackError] = HaversackError) -> Iterator[type[HaversackError]]:
    for each in root.__subclasses__():
        yield each
        yield from _classes(each)


_BY_REASON = {reason_of(each): each for each in _classes()}
_BY_STATUS = {each.status: each for each in _classes()}
