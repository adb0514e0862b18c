"""Starts and stops a server: what listens, in which order it opens, and how it drains."""

import asyncio
import contextlib
import os
import pathlib
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # pyright: ignore[reportAttributeAccessIssue]

from haversack.errors import HaversackError
from haversack.v1.service_pb2_grpc import add_HaversackServiceServicer_to_server
from haversack_server.execution import JobLimits
from haversack_server.jobs import JobRunner, Listeners
from haversack_server.planner import Planner
from haversack_server.ray_place import AUTO, RayPlace
from haversack_server.service.admission import Admission
from haversack_server.service.around import SERVICE
from haversack_server.service.errors import Errors
from haversack_server.service.exposition import serving_metrics
from haversack_server.service.metrics import Measure, Metrics
from haversack_server.service.rooms import Rooms
from haversack_server.service.servicer import Servicer
from haversack_server.service.settings import NS_OF_DAY, RAY, Settings, split_address
from haversack_server.store import Store
from haversack_server.verify.weight_files import ANYWHERE

if TYPE_CHECKING:
    from haversack_server.plan.solving import Devices

LARGEST_MESSAGE = 64 * 2**20  # bytes, both ways; about four times that in memory
_LAST_ANSWERS_S = 0.2  # for answers that are on their way out
_LAST_STEPS_S = 2.0  # for work that was told to stop; it looks every few milliseconds
_OPTIONS = (
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # Otherwise a second server binds a taken port without a word, and shares its connections.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A server that is ready: where callers and Prometheus reach it."""

    target: str
    metrics_port: int | None


def serving_embedded(
    address: str, *, allow: tuple[str, ...]
) -> AbstractAsyncContextManager[Running]:
    """Serve a caller's own process: workers import from its current folder too.

    Weights are read from wherever the caller may read: it is the operator.
    """
    return serving(
        address, Settings(allow=allow, weights_dirs=ANYWHERE, worker_path=(os.getcwd(),))
    )


@contextlib.asynccontextmanager
async def serving(
    address: str, settings: Settings | None = None, rooms: Rooms | None = None
) -> AsyncIterator[Running]:
    """Serve on ``address`` while the context lasts; port 0 picks a free one.

    Leaving the context drains: health says NOT_SERVING, new calls are refused, running ones have
    the grace to finish. Raises HaversackError if the address or the metrics port cannot be had.
    """
    settings = settings or Settings()
    metrics = Metrics()
    async with contextlib.AsyncExitStack() as stack:
        jobs = await stack.enter_async_context(_job_runner(settings, metrics))
        if settings.executor == RAY:
            await jobs.warm()  # a cluster that cannot be reached is said now, not by each job
        metrics.watch(jobs.counts)
        if settings.cuda and rooms is None:
            rooms = Rooms.solving_on(_open_cuda(stack, metrics))
        planner = Planner(settings.allow, settings.worker_path)
        servicer = Servicer(rooms or Rooms(), jobs, planner, metrics, settings.solver_threads)
        stack.push_async_callback(servicer.close, max(settings.grace_s, _LAST_STEPS_S))
        measure = Measure(metrics)
        chain = (measure, Errors(), Admission(settings.max_in_flight, metrics))
        server = grpc.aio.server(interceptors=chain, options=_OPTIONS)
        add_HaversackServiceServicer_to_server(servicer, server)
        health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        await _say(health, health_pb2.HealthCheckResponse.NOT_SERVING)
        if settings.reflection:
            _add_reflection(server)
        # First, so that a host that is none of this machine's is not laid to the metrics' port.
        target = _bound(server, address)
        metrics_port = await _open_metrics(stack, metrics, address, settings.metrics_port)
        await server.start()
        stack.push_async_callback(_drain, server, health, measure.idle, settings.grace_s)
        stack.callback(jobs.expect_end)
        if settings.warm:
            await jobs.devices()  # NVML may take a second for the first time, and the log has it
            await servicer.warm()
        await _say(health, health_pb2.HealthCheckResponse.SERVING)
        yield Running(target=target, metrics_port=metrics_port)


def _job_runner(settings: Settings, metrics: Metrics) -> JobRunner:
    """Make what runs jobs; with a folder for the state it knows those of an earlier server."""
    store = None
    if settings.state_dir:
        store = Store(pathlib.Path(settings.state_dir), metrics.store_faults.inc)
    limits = JobLimits(
        kept_reports=settings.keep_reports, kept_ns=int(settings.keep_days * NS_OF_DAY)
    )
    place = None
    if settings.executor == RAY:
        place = RayPlace(settings.ray_address or AUTO, jobs=limits.waiting_jobs)
    return JobRunner(
        settings.allow,
        settings.worker_path,
        limits=limits,
        weights_dirs=settings.weights_dirs,
        place=place,
        store=store,
        listeners=Listeners(report=metrics.count_report, waited=metrics.count_wait),
    )


def _open_cuda(stack: contextlib.AsyncExitStack, metrics: Metrics) -> "Devices":
    """Begin to start the CUDA worker, if a device is attached; gives where solves may run."""
    from haversack_server.cuda.keeper import Keeper  # loads numba, which an estimate does not need

    keeper = Keeper(metrics.count_cuda)
    metrics.cuda_ready.set_function(lambda: keeper.is_ready)
    stack.push_async_callback(asyncio.to_thread, keeper.close)
    keeper.open()
    return keeper.devices


async def _say(health: health_aio.HealthServicer, status: int) -> None:
    for service in ("", SERVICE.full_name):
        await health.set(service, status)


def _add_reflection(server: grpc.aio.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    names = (SERVICE.full_name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


async def _open_metrics(
    stack: contextlib.AsyncExitStack, metrics: Metrics, address: str, port: int | None
) -> int | None:
    if port is None:
        return None
    host, _ = split_address(address, "listen")
    return await stack.enter_async_context(serving_metrics(metrics.registry, host, port))


async def _drain(
    server: grpc.aio.Server, health: health_aio.HealthServicer, idle: asyncio.Event, grace_s: float
) -> None:
    """Say NOT_SERVING, refuse what is new, and end with the last of our calls or the grace."""
    await health.enter_graceful_shutdown()
    stopping = asyncio.create_task(server.stop(grace_s))
    our_last = asyncio.create_task(idle.wait())
    await asyncio.wait((stopping, our_last), return_when=asyncio.FIRST_COMPLETED)
    our_last.cancel()
    # Callers that watch the health would hold the server up for the whole grace.
    await server.stop(min(grace_s, _LAST_ANSWERS_S))
    await stopping


def _bound(server: grpc.aio.Server, address: str) -> str:
    """Bind the address; gives the target to connect to."""
    is_socket = address.startswith("unix:")
    host, wanted = ("", 0) if is_socket else split_address(address, "listen")
    if not is_socket:
        _refuse_if_taken(host, wanted)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as refused:
        raise HaversackError(f"cannot listen on {address}; give another address") from refused
    return address if is_socket else f"{host}:{port}"


def _refuse_if_taken(host: str, port: int) -> None:
    """Try the address as gRPC will: it says only that it failed, the system says why."""
    try:
        for family, kind, _, _, place in socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(place)
    except OSError as refused:
        reason = refused.strerror or refused
        raise HaversackError(
            f"cannot listen on {host}:{port}: {reason}; give another address"
        ) from refused
