"""The blocking client. Its twin is ``_async``: equal signatures, the same few lines."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from haversack import _calls, requests
from haversack._calls import SHORT_TIMEOUT, Rpc
from haversack._embedded import embedded_server
from haversack.estimate import Estimate, EstimateRequest, WhatIf
from haversack.keywords import ModelPlanOptions, PlanOptions, RunOptions, VerifyOptions
from haversack.plan import Plan, PlanRequest
from haversack.questions import EstimateQuestion, OutOfMemory
from haversack.run import BlockAction, Measurement
from haversack.v1.service_pb2_grpc import HaversackServiceStub
from haversack.verify import (
    JobState,
    ListWorkloadsResponse,
    VerifyEvent,
    VerifyReport,
    VerifyRequest,
)
from haversack.verify_devices import ListVerifyDevicesResponse
from haversack.verify_jobs import GetVerifyJobRequest, ListVerifyJobsResponse, VerifyJob

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Client:
    """Asks a server at ``address``, or one inside this process where none is named.

    A context manager; ``close()`` does the same. ``timeout`` is in seconds and travels with the
    call, all attempts together. Safe to share between threads, not with a forked process.
    ``allow`` are dotted prefixes that Verify jobs may import, for a server inside this process.
    """

    def __init__(self, address: str | None = None, *, allow: Sequence[str] = ()) -> None:
        _calls.check_target(address, allow)
        self._usable = _calls.Usable()
        with contextlib.ExitStack() as opened:
            self._address = address or opened.enter_context(embedded_server(allow))
            options = _calls.channel_options(self._address)
            channel = opened.enter_context(grpc.insecure_channel(self._address, options))
            self._stub: Any = HaversackServiceStub(channel)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End calls that are under way and, if it is ours, the server."""
        self._usable.closed = True
        if not self._usable.is_forked():
            self._opened.close()

    def estimate(
        self,
        request: EstimateRequest | None = None,
        *,
        timeout: float = _calls.ESTIMATE_TIMEOUT,
        what_ifs: Sequence[WhatIf | Mapping[str, Any]] = (),
        actions: Sequence[BlockAction] = (),
        questions: Sequence[EstimateQuestion | str] = (),
        measurements: Sequence[Measurement | Mapping[str, Any]] = (),
        oom: OutOfMemory | str | None = None,
        **run: Unpack[RunOptions],
    ) -> Estimate:
        """Ask what a training run needs on each rank; a request, or the keywords of one."""
        keywords = {
            "what_ifs": what_ifs,
            "actions": actions,
            "questions": questions,
            "measurements": measurements,
            "oom": oom,
            **run,
        }
        asked = _calls.request_of(request, keywords, requests.estimate_request)
        return self._ask(_calls.ESTIMATE, asked, timeout)

    def plan(
        self,
        request: PlanRequest | None = None,
        *,
        timeout: float = _calls.PLAN_TIMEOUT,
        **options: Unpack[PlanOptions],
    ) -> Plan:
        """Ask what to save and to recompute under a budget; a request, or the keywords of one.

        The usual ``timeout``, six minutes, has room for the first plan of a machine, which compiles
        the kernels, and for a ``workload``, which is profiled and certified.
        """
        asked = _calls.request_of(request, dict(options), requests.plan_request)
        return _calls.with_profile(self._ask(_calls.PLAN, asked, timeout), asked)

    def plan_candidates(
        self,
        *,
        size_bytes: Sequence[int],
        gain: Sequence[int],
        budget_bytes: int,
        fixed_bytes: int = 0,
        names: Sequence[str] = (),
        frontier_points: int | None = None,
        state_limit: int | None = None,
        timeout: float = _calls.PLAN_TIMEOUT,
    ) -> Plan:
        """Ask which of independent candidates to save, given as columns."""
        request = _calls.candidates_request(
            size_bytes=size_bytes,
            gain=gain,
            names=names,
            fixed_bytes=fixed_bytes,
            budget_bytes=budget_bytes,
            frontier_points=frontier_points,
            state_limit=state_limit,
        )
        return self.plan(request, timeout=timeout)

    def plan_model(
        self,
        *,
        timeout: float = _calls.PLAN_TIMEOUT,
        **options: Unpack[ModelPlanOptions],
    ) -> Plan:
        """Ask which blocks of a model to save and which to recompute."""
        request = requests.plan_request(**options)
        return self.plan(request, timeout=timeout)

    def verify(
        self,
        request: VerifyRequest | None = None,
        *,
        workload: str = "",
        on_event: Callable[[VerifyEvent], object] | None = None,
        timeout: float = _calls.FIRST_EVENT_TIMEOUT,
        **options: Unpack[VerifyOptions],
    ) -> VerifyReport:
        """Ask whether activation checkpointing changes a workload; a request, or its keywords.

        ``on_event`` is called with every event. ``timeout`` is the time to the first one.
        """
        keywords = {"workload": workload, **options}
        asked = _calls.request_of(request, keywords, requests.verify_request)
        with contextlib.closing(self.verify_events(asked, timeout=timeout)) as events:
            for event in events:
                if on_event is not None:
                    on_event(event)
                if event.report is not None:
                    return event.report
        raise _calls.no_report()

    def verify_events(
        self, request: VerifyRequest, *, timeout: float = _calls.FIRST_EVENT_TIMEOUT
    ) -> Generator[VerifyEvent, None, None]:
        """Follow a Verify job, the report last; leaving the loop early lets go of the job.

        ``timeout`` is the time to the first event; the job has a limit of its own.
        """
        call, first = self._first_event(request, timeout)
        try:
            for response in itertools.chain([first], call):
                event = _calls.VERIFY.incoming(response)
                if event.report is not None:
                    _let_end(call)
                yield event
        except grpc.RpcError as failure:
            raise _calls.error_of(failure, self._address) from failure
        finally:
            call.cancel()

    def cancel_verify(self, job_id: str, *, timeout: float = SHORT_TIMEOUT) -> JobState:
        """Stop a job, and tell where it stands; one that has its report stays as it is."""
        request = _calls.CANCEL_VERIFY.request(job_id=job_id)
        return self._ask(_calls.CANCEL_VERIFY, request, timeout).state

    def get_verify_job(self, job_id: str, *, timeout: float = SHORT_TIMEOUT) -> VerifyJob:
        """Ask where a job stands; its report is there once it is over."""
        request = GetVerifyJobRequest(job_id=job_id)
        return self._ask(_calls.GET_VERIFY_JOB, request, timeout).job

    def list_verify_jobs(
        self,
        *,
        states: Sequence[JobState | str] = (),
        page_size: int | None = None,
        page_token: str = "",
        timeout: float = SHORT_TIMEOUT,
    ) -> ListVerifyJobsResponse:
        """List a page of the jobs that the server knows, the latest first, without reports."""
        request = requests.list_verify_jobs_request(
            states=states, page_size=page_size, page_token=page_token
        )
        return self._ask(_calls.LIST_VERIFY_JOBS, request, timeout)

    def list_verify_devices(self, *, timeout: float = SHORT_TIMEOUT) -> ListVerifyDevicesResponse:
        """List the GPUs that Verify's jobs may have, as they are at the moment."""
        rpc = _calls.LIST_VERIFY_DEVICES
        return self._ask(rpc, rpc.request(), timeout)

    def list_workloads(self, *, timeout: float = SHORT_TIMEOUT) -> ListWorkloadsResponse:
        """List the built-in workloads."""
        return self._ask(_calls.LIST_WORKLOADS, _calls.LIST_WORKLOADS.request(), timeout)

    def _ask(self, rpc: Rpc[Request, Answer], request: Request, timeout: float) -> Answer:
        self._usable.check()
        message = rpc.outgoing(request)
        attempts = _calls.Attempts(timeout)
        while True:
            try:
                response = getattr(self._stub, rpc.name)(message, timeout=attempts.time_left())
            except grpc.RpcError as failure:
                wait = attempts.wait_after(_calls.error_of(failure, self._address), failure)
            else:
                return rpc.incoming(response)
            time.sleep(wait)

    def _first_event(self, request: VerifyRequest, timeout: float) -> tuple[Any, Any]:
        """Open the stream of a job, and wait for its first message."""
        self._usable.check()
        message = _calls.VERIFY.outgoing(_calls.with_job_id(request))
        attempts = _calls.Attempts(timeout)
        while True:
            call = self._stub.Verify(message)
            # Not a deadline of the call, which would end the job's whole stream.
            alarm = threading.Timer(attempts.time_left(), call.cancel)
            alarm.daemon = True
            alarm.start()
            try:
                return call, next(call)
            except StopIteration:
                raise _calls.no_report() from None
            except grpc.RpcError as failure:
                if not attempts.time_left():
                    raise _calls.no_first_event(timeout) from failure
                wait = attempts.wait_after(_calls.error_of(failure, self._address), failure)
            finally:
                alarm.cancel()
            time.sleep(wait)


def _let_end(call: Any) -> None:
    """Wait for the status of a stream that gave its last message.

    Letting go of it before would have the server count an answered call as one that was cancelled.
    """
    ended = threading.Event()
    if call.add_callback(ended.set):
        ended.wait(_calls.END_TIMEOUT)


def connect(address: str | None = None, *, allow: Sequence[str] = ()) -> Client:
    """Connect to a server, or to one inside this process; for ``with``, or close it later."""
    return Client(address, allow=allow)
