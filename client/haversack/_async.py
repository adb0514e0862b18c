"""The awaiting client. Its twin is ``_sync``: equal signatures, the same few lines."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc.aio

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


class AsyncClient:
    """Asks a server at ``address``, or one inside this process where none is named.

    An asynchronous context manager; ``await close()`` does the same. It connects with its first
    call, and belongs to the event loop of that call. ``timeout`` is in seconds and travels with
    the call, all attempts together. ``allow`` are dotted prefixes that Verify jobs may import, for
    a server inside this process.
    """

    def __init__(self, address: str | None = None, *, allow: Sequence[str] = ()) -> None:
        _calls.check_target(address, allow)
        self._usable = _calls.Usable()
        self._address = address or ""
        self._allow = tuple(allow)
        self._server = contextlib.ExitStack()
        self._opening = asyncio.Lock()
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End calls that are under way and, if it is ours, the server."""
        self._usable.closed = True
        if self._usable.is_forked():
            return
        if self._channel is not None:
            await self._channel.close()
        await asyncio.to_thread(self._server.close)

    async def estimate(
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
        return await self._ask(_calls.ESTIMATE, asked, timeout)

    async def plan(
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
        return _calls.with_profile(await self._ask(_calls.PLAN, asked, timeout), asked)

    async def plan_candidates(
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
        return await self.plan(request, timeout=timeout)

    async def plan_model(
        self,
        *,
        timeout: float = _calls.PLAN_TIMEOUT,
        **options: Unpack[ModelPlanOptions],
    ) -> Plan:
        """Ask which blocks of a model to save and which to recompute."""
        request = requests.plan_request(**options)
        return await self.plan(request, timeout=timeout)

    async def verify(
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
        async with contextlib.aclosing(self.verify_events(asked, timeout=timeout)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
                if event.report is not None:
                    return event.report
        raise _calls.no_report()

    async def verify_events(
        self, request: VerifyRequest, *, timeout: float = _calls.FIRST_EVENT_TIMEOUT
    ) -> AsyncGenerator[VerifyEvent, None]:
        """Follow a Verify job, the report last; leaving the loop early lets go of the job.

        ``timeout`` is the time to the first event; the job has a limit of its own.
        """
        call, response = await self._first_event(request, timeout)
        try:
            while response is not grpc.aio.EOF:
                event = _calls.VERIFY.incoming(response)
                if event.report is not None:
                    await _let_end(call)
                yield event
                response = await call.read()
        except grpc.aio.AioRpcError as failure:
            raise _calls.error_of(failure, self._address) from failure
        finally:
            call.cancel()

    async def cancel_verify(self, job_id: str, *, timeout: float = SHORT_TIMEOUT) -> JobState:
        """Stop a job, and tell where it stands; one that has its report stays as it is."""
        request = _calls.CANCEL_VERIFY.request(job_id=job_id)
        return (await self._ask(_calls.CANCEL_VERIFY, request, timeout)).state

    async def get_verify_job(self, job_id: str, *, timeout: float = SHORT_TIMEOUT) -> VerifyJob:
        """Ask where a job stands; its report is there once it is over."""
        request = GetVerifyJobRequest(job_id=job_id)
        return (await self._ask(_calls.GET_VERIFY_JOB, request, timeout)).job

    async def list_verify_jobs(
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
        return await self._ask(_calls.LIST_VERIFY_JOBS, request, timeout)

    async def list_verify_devices(
        self, *, timeout: float = SHORT_TIMEOUT
    ) -> ListVerifyDevicesResponse:
        """List the GPUs that Verify's jobs may have, as they are at the moment."""
        rpc = _calls.LIST_VERIFY_DEVICES
        return await self._ask(rpc, rpc.request(), timeout)

    async def list_workloads(self, *, timeout: float = SHORT_TIMEOUT) -> ListWorkloadsResponse:
        """List the built-in workloads."""
        return await self._ask(_calls.LIST_WORKLOADS, _calls.LIST_WORKLOADS.request(), timeout)

    async def _open(self) -> Any:
        """Connect if it has not been done, off the loop where a server must start first."""
        self._usable.check()
        async with self._opening:
            if self._stub is None:
                if not self._address:
                    embedded = embedded_server(self._allow)
                    self._address = await asyncio.to_thread(self._server.enter_context, embedded)
                options = _calls.channel_options(self._address)
                self._channel = grpc.aio.insecure_channel(self._address, options)
                self._stub = HaversackServiceStub(self._channel)
        return self._stub

    async def _ask(self, rpc: Rpc[Request, Answer], request: Request, timeout: float) -> Answer:
        stub = await self._open()
        message = rpc.outgoing(request)
        attempts = _calls.Attempts(timeout)
        while True:
            try:
                response = await getattr(stub, rpc.name)(message, timeout=attempts.time_left())
            except grpc.aio.AioRpcError as failure:
                wait = attempts.wait_after(_calls.error_of(failure, self._address), failure)
            else:
                return rpc.incoming(response)
            await asyncio.sleep(wait)

    async def _first_event(self, request: VerifyRequest, timeout: float) -> tuple[Any, Any]:
        """Open the stream of a job, and wait for its first message."""
        stub = await self._open()
        message = _calls.VERIFY.outgoing(_calls.with_job_id(request))
        attempts = _calls.Attempts(timeout)
        while True:
            call = stub.Verify(message)
            try:
                # Not a deadline of the call, which would end the job's whole stream.
                return call, await asyncio.wait_for(call.read(), attempts.time_left())
            except TimeoutError as silent:
                raise _calls.no_first_event(timeout) from silent
            except grpc.aio.AioRpcError as failure:
                wait = attempts.wait_after(_calls.error_of(failure, self._address), failure)
            await asyncio.sleep(wait)


async def _let_end(call: Any) -> None:
    """Wait for the status of a stream that gave its last message.

    Letting go of it before would have the server count an answered call as one that was cancelled.
    """
    await asyncio.wait({asyncio.ensure_future(call.code())}, timeout=_calls.END_TIMEOUT)


def connect_async(address: str | None = None, *, allow: Sequence[str] = ()) -> AsyncClient:
    """Make an awaiting client of a server, or of one inside this process; for ``async with``."""
    return AsyncClient(address, allow=allow)
