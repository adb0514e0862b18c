"""What both clients share, without I/O: the calls, options, deadlines, retries, errors.

UNAVAILABLE is retried by gRPC itself, after the service config below; RESOURCE_EXHAUSTED by
``Attempts``, and only where the server says when to come back: gRPC uses the same status for
messages that are too large, which no retry makes smaller.
"""

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from haversack import checks, requests, status, wire
from haversack._embedded import AFTER_A_FORK
from haversack.errors import (
    DeadlineError,
    HaversackError,
    InternalError,
    InvalidRequestError,
    NotSupportedError,
    OverloadedError,
    UnavailableError,
    check,
)
from haversack.estimate import Estimate, EstimateRequest
from haversack.plan import Plan, PlanRequest
from haversack.run import Budget
from haversack.v1 import service_pb2
from haversack.verify import (
    CancelVerifyRequest,
    CancelVerifyResponse,
    ListWorkloadsRequest,
    ListWorkloadsResponse,
    VerifyEvent,
    VerifyRequest,
)
from haversack.verify_devices import ListVerifyDevicesRequest, ListVerifyDevicesResponse
from haversack.verify_jobs import (
    GetVerifyJobRequest,
    GetVerifyJobResponse,
    ListVerifyJobsRequest,
    ListVerifyJobsResponse,
)

ESTIMATE_TIMEOUT = 10.0  # seconds
# The first plan of a machine compiles the kernels, a minute or more of a busy processor; a worker
# that profiles code has 300 s, and says itself that they were too few.
PLAN_TIMEOUT = 360.0
FIRST_EVENT_TIMEOUT = 30.0  # of Verify; the job has a limit of its own
SHORT_TIMEOUT = 10.0
END_TIMEOUT = 10.0  # for the status of a stream that has given its report
LARGEST_MESSAGE = 64 * 2**20  # bytes, the server's limit too
MOST_ATTEMPTS = 4
LONGEST_TIMEOUT = 10**9  # seconds; what cannot be told from "for ever" is no deadline

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True)
class Rpc(Generic[Request, Answer]):
    """A call of the service: its name, and the nouns that are asked and answered."""

    name: str
    request: type[Request]
    answer: type[Answer]

    def outgoing(self, request: Request) -> Message:
        """Write a request; one that is too large is refused before it is sent."""
        if type(request) is not self.request:
            given, needed = type(request).__name__, self.request.__name__
            raise TypeError(f"{self.name} takes a haversack.{needed}, not a {given}")
        message = wire.message_of(request)
        if message.ByteSize() > LARGEST_MESSAGE:
            sentence = f"a request of {message.ByteSize()} bytes is above the limit of 64 MiB"
            raise InvalidRequestError(sentence, field="request")
        return message

    def incoming(self, message: Message) -> Answer:
        """Read an answer; one of a newer server may hold what this client does not know."""
        try:
            return wire.from_message(self.answer, message)
        except InvalidRequestError as wrong:
            sentence = f"the server's answer is newer than this client; update haversack ({wrong})"
            raise NotSupportedError(sentence) from wrong


ESTIMATE = Rpc("Estimate", EstimateRequest, Estimate)
PLAN = Rpc("Plan", PlanRequest, Plan)
VERIFY = Rpc("Verify", VerifyRequest, VerifyEvent)
CANCEL_VERIFY = Rpc("CancelVerify", CancelVerifyRequest, CancelVerifyResponse)
GET_VERIFY_JOB = Rpc("GetVerifyJob", GetVerifyJobRequest, GetVerifyJobResponse)
LIST_VERIFY_JOBS = Rpc("ListVerifyJobs", ListVerifyJobsRequest, ListVerifyJobsResponse)
LIST_VERIFY_DEVICES = Rpc("ListVerifyDevices", ListVerifyDevicesRequest, ListVerifyDevicesResponse)
LIST_WORKLOADS = Rpc("ListWorkloads", ListWorkloadsRequest, ListWorkloadsResponse)

_SERVICE = service_pb2.DESCRIPTOR.services_by_name["HaversackService"].full_name
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": _SERVICE}],
            "retryPolicy": {
                "maxAttempts": MOST_ATTEMPTS,
                "initialBackoff": "0.05s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}
_OPTIONS = (
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A ping that is under way already obeys this one, 60 s if not set, and not the line above.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
)
_LOOPBACK = ("127.", "localhost:", "[::1]:")


def channel_options(target: str) -> tuple[tuple[str, Any], ...]:
    """Choose the options of a channel; a proxy in the environment is none for this machine."""
    if target.startswith(_LOOPBACK):
        return (*_OPTIONS, ("grpc.enable_http_proxy", 0))
    return _OPTIONS


def check_target(address: str | None, allow: Sequence[str]) -> None:
    """Check what a client connects to; prefixes are for a server that is ours to configure."""
    if address is not None:
        check(checks.address("address", address))
    if address and allow:
        sentence = "leave it out with an address: the server's own configuration decides"
        raise InvalidRequestError(sentence, field="allow")


def request_of(
    given: Request | None, keywords: dict[str, Any], build: Callable[..., Request]
) -> Request:
    """Take the request that was given, or build it from keywords; never both."""
    if given is None:
        return build(**keywords)
    for name, value in keywords.items():
        if not _is_left_out(value):
            sentence = f"give a request or keywords such as {name}, not both"
            raise InvalidRequestError(sentence, field="request")
    return given


def with_profile(answer: Plan, request: PlanRequest) -> Plan:
    """Put the profile that was sent beside its plan, which a server does not send back."""
    if answer.profile is not None or request.profile is None:
        return answer
    return dataclasses.replace(answer, profile=request.profile)


def _is_left_out(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, tuple | list | str) and not value)


def candidates_request(
    *,
    size_bytes: Sequence[int],
    gain: Sequence[int],
    names: Sequence[str],
    fixed_bytes: int,
    budget_bytes: int,
    frontier_points: int | None,
    state_limit: int | None,
) -> PlanRequest:
    """Build the request for a plan of independent candidates; columns may be numpy arrays."""
    columns = {"size_bytes": size_bytes, "gain": gain, "names": names, "fixed_bytes": fixed_bytes}
    return requests.plan_request(
        candidates=columns,
        budget=Budget(bytes=checks.plain(budget_bytes)),
        frontier_points=frontier_points,
        state_limit=state_limit,
    )


def with_job_id(request: VerifyRequest) -> VerifyRequest:
    """Name the job here, so that a retry finds the job that the first attempt started."""
    if type(request) is not VerifyRequest or request.job_id:
        return request
    return dataclasses.replace(request, job_id=uuid.uuid4().hex)


def error_of(failure: Any, address: str) -> HaversackError:
    """Read the failure of a call, blocking or awaited, as one of our errors."""
    code, message = failure.code(), failure.details() or ""
    details = dict(failure.trailing_metadata() or ()).get(status.DETAILS_KEY)
    error = status.error_of(code.name, message, details)
    if details:
        return error
    if isinstance(error, UnavailableError):
        return UnavailableError(f"no server answers at {address}: {message}")
    if isinstance(error, DeadlineError):
        return DeadlineError("the deadline passed before the answer; give a longer timeout")
    return error if message else type(error)(f"the call failed with {code.name}")


def checked_timeout(timeout: float) -> float:
    """Check a timeout in seconds; every call has one."""
    seconds = checks.plain(timeout)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < LONGEST_TIMEOUT:
        sentence = f"{checks.shortly(timeout)} is not a number of seconds above 0, such as 60"
        raise InvalidRequestError(sentence, field="timeout")
    return float(seconds)


def no_first_event(timeout: float) -> DeadlineError:
    """Say that a Verify stream stayed silent."""
    return DeadlineError(f"no event within {timeout:g} s; give a longer timeout")


def no_report() -> InternalError:
    """Say that a Verify stream ended too early."""
    return InternalError("the events of the job ended without a report")


class Attempts:
    """The tries of one call: how long is left, and whether another one is allowed."""

    def __init__(self, timeout: float) -> None:
        self._ends_at = time.monotonic() + checked_timeout(timeout)
        self._made = 0

    def time_left(self) -> float:
        """Seconds until the deadline of the call, all attempts together."""
        return max(self._ends_at - time.monotonic(), 0.0)

    def wait_after(self, error: HaversackError, failure: Exception) -> float:
        """Say how many seconds to wait before the next attempt.

        Raises the error, caused by the failure it was read from, where there is no next one.
        """
        self._made += 1
        asked_ns = error.retry_after_ns if isinstance(error, OverloadedError) else 0
        wait = (asked_ns << (self._made - 1)) / 1e9
        if not asked_ns or self._made >= MOST_ATTEMPTS or wait >= self.time_left():
            raise error from failure
        return wait


class Usable:
    """Whether a client can still make calls: not once closed, nor in another process.

    A gRPC channel does not survive a fork; a call on it would hang.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.closed = False

    def is_forked(self) -> bool:
        """Whether this is a child of the process that made the client."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise if it cannot."""
        if self.is_forked():
            raise HaversackError(
                f"this client was made in process {self._pid} and does not survive a fork; "
                f"{AFTER_A_FORK}"
            )
        if self.closed:
            raise HaversackError("this client is closed; make another one")
