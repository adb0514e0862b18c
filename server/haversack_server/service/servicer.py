"""The calls: read the noun, ask the room, write the message.

Knows no rule of any room, and no status: what a room raises is for the interceptors.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import Message

from haversack import plan, wire
from haversack.estimate import Estimate, EstimateRequest
from haversack.plan import PlanRequest
from haversack.v1 import (
    devices_pb2,
    estimate_pb2,
    jobs_pb2,
    plan_pb2,
    questions_pb2,
    verify_pb2,
)
from haversack.v1.service_pb2_grpc import HaversackServiceServicer
from haversack.verify import (
    CancelVerifyRequest,
    CancelVerifyResponse,
    ListWorkloadsResponse,
    VerifyRequest,
)
from haversack.verify_jobs import (
    GetVerifyJobRequest,
    GetVerifyJobResponse,
    ListVerifyJobsRequest,
)
from haversack_server.job_book import summary
from haversack_server.jobs import JobRunner
from haversack_server.planner import Planner
from haversack_server.service.metrics import Metrics
from haversack_server.service.rooms import Rooms, Stop
from haversack_server.service.threads import Threads
from haversack_server.tracer import Tracer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Answer = TypeVar("Answer")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
ESTIMATE_THREADS = 2  # of their own: an estimate does not wait behind a minute's solve


class Servicer(HaversackServiceServicer):
    """Answers the calls of one server."""

    def __init__(
        self,
        rooms: Rooms,
        jobs: JobRunner,
        planner: Planner,
        metrics: Metrics,
        solver_threads: int,
    ) -> None:
        self._rooms = rooms
        self._jobs = jobs
        self._metrics = metrics
        self._tracer = Tracer()
        self._planner = planner
        self._estimates = Threads("haversack-estimate", ESTIMATE_THREADS)
        self._solves = Threads("haversack-solve", solver_threads)
        self._is_warming = False

    async def warm(self) -> None:
        """Compile the kernels, in the thread that will run them.

        Where it is cancelled the thread goes on, as a compiler cannot be told to stop.
        """
        self._is_warming = True
        await self._solves.run(self._rooms.warm, holds_caller=False)
        self._is_warming = False

    async def close(self, grace_s: float) -> None:
        """Tell what still runs to stop, and wait for it ``grace_s`` seconds at most."""
        ends = [self._estimates.close(grace_s), self._tracer.close(), self._planner.close()]
        if not self._is_warming:  # else nobody waits for a solve, and a compiler does not stop
            ends.append(self._solves.close(grace_s))
        await asyncio.gather(*ends)

    async def Estimate(
        self, request: estimate_pb2.EstimateRequest, context: Context
    ) -> estimate_pb2.EstimateResponse:
        """Answer what a training run needs on each rank; the work ends with the call."""
        told = threading.Event()
        answer = await self._estimates.run(
            lambda: self._estimate(request, told.is_set), stop=told.set
        )
        if questions_pb2.ESTIMATE_QUESTION_TRACE in request.questions:
            return await self._traced(request, answer)
        return answer

    async def Plan(self, request: plan_pb2.PlanRequest, context: Context) -> plan_pb2.PlanResponse:
        """Answer what to save and what to recompute; the solver ends with the call."""
        if request.HasField("workload"):
            noun = wire.from_message(PlanRequest, request)
            answer = await self._planner.plan(noun, self._solved)
            return _plan_response(request, answer)
        return await self._in_solver(
            lambda cancel: _plan_response(
                request, self._plan(wire.from_message(PlanRequest, request), cancel)
            )
        )

    async def _solved(self, request: PlanRequest) -> plan.Plan:
        return await self._in_solver(lambda cancel: self._plan(request, cancel))

    async def _in_solver(self, work: "Callable[[NDArray[np.uint8]], Answer]") -> Answer:
        """Run work in a solver's thread; it is told to stop with the call."""
        import numpy as np  # an estimate needs none

        cancel = np.zeros(1, np.uint8)
        return await self._solves.run(lambda: work(cancel), stop=lambda: cancel.fill(1))

    # A coroutine that writes its responses, as ``around`` says.
    async def Verify(  # type: ignore[override]
        self, request: verify_pb2.VerifyRequest, context: Context
    ) -> None:
        """Stream the events of a job, from its first on."""
        job = self._jobs.submit(wire.from_message(VerifyRequest, request))
        # Closed with the call, however it ends: that is how the job learns that nobody listens.
        async with aclosing(job.events()) as events:
            async for event in events:
                await context.write(wire.to_message(event, verify_pb2.VerifyResponse()))

    async def CancelVerify(
        self, request: verify_pb2.CancelVerifyRequest, context: Context
    ) -> verify_pb2.CancelVerifyResponse:
        """Stop a job, and tell where it stands."""
        job_id = wire.from_message(CancelVerifyRequest, request).job_id
        answer = CancelVerifyResponse(state=await self._jobs.cancel(job_id))
        return wire.to_message(answer, verify_pb2.CancelVerifyResponse())

    async def GetVerifyJob(
        self, request: jobs_pb2.GetVerifyJobRequest, context: Context
    ) -> jobs_pb2.GetVerifyJobResponse:
        """Tell where a job stands, with its report if it is over."""
        job = self._jobs.job(wire.from_message(GetVerifyJobRequest, request).job_id)
        answer = GetVerifyJobResponse(job=replace(summary(job), report=job.report))
        return wire.to_message(answer, jobs_pb2.GetVerifyJobResponse())

    async def ListVerifyJobs(
        self, request: jobs_pb2.ListVerifyJobsRequest, context: Context
    ) -> jobs_pb2.ListVerifyJobsResponse:
        """List a page of the jobs that are known."""
        answer = self._jobs.page(wire.from_message(ListVerifyJobsRequest, request))
        return wire.to_message(answer, jobs_pb2.ListVerifyJobsResponse())

    async def ListVerifyDevices(
        self, request: devices_pb2.ListVerifyDevicesRequest, context: Context
    ) -> devices_pb2.ListVerifyDevicesResponse:
        """List the GPUs that jobs may have."""
        answer = await self._jobs.devices()
        return wire.to_message(answer, devices_pb2.ListVerifyDevicesResponse())

    async def ListWorkloads(
        self, request: verify_pb2.ListWorkloadsRequest, context: Context
    ) -> verify_pb2.ListWorkloadsResponse:
        """List the built-in workloads."""
        answer = ListWorkloadsResponse(workloads=self._jobs.workloads())
        return wire.to_message(answer, verify_pb2.ListWorkloadsResponse())

    def _estimate(
        self, request: estimate_pb2.EstimateRequest, stop: Stop
    ) -> estimate_pb2.EstimateResponse:
        answer = self._rooms.estimate(wire.from_message(EstimateRequest, request), stop)
        answer = replace(answer, request_digest=_digest(request))
        return wire.to_message(answer, estimate_pb2.EstimateResponse())

    async def _traced(
        self, request: estimate_pb2.EstimateRequest, answer: estimate_pb2.EstimateResponse
    ) -> estimate_pb2.EstimateResponse:
        """Run the step that was estimated; the worker ends with the call."""
        from haversack_server.estimate.trace import trace_order, with_trace

        noun = wire.from_message(EstimateRequest, request)
        found = await self._tracer.run(trace_order(noun))
        traced = with_trace(wire.from_message(Estimate, answer), noun, found)
        return wire.to_message(traced, estimate_pb2.EstimateResponse())

    def _plan(self, request: PlanRequest, cancel: "NDArray[np.uint8]") -> plan.Plan:
        started_at = time.perf_counter()
        answer = self._rooms.plan(request, cancel)
        self._metrics.solve.labels(answer.solver).observe(time.perf_counter() - started_at)
        return answer


def _plan_response(request: plan_pb2.PlanRequest, answer: plan.Plan) -> plan_pb2.PlanResponse:
    answer = replace(answer, request_digest=_digest(request))
    return wire.to_message(answer, plan_pb2.PlanResponse())


def _digest(request: Message) -> str:
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
