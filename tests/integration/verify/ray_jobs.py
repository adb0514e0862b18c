"""A Ray cluster of two machines on the loopback, and its jobs as the system sees them.

One machine has a processor. The other has two, and two GPUs that are declared: Ray hands them out,
``tests/fake_nvml.c`` describes them, and no driver is there.
"""

import asyncio
import importlib
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from tests import fake_nvml

from haversack.run import WorkloadReference
from haversack.verify import VerifyReport, VerifyRequest
from haversack_server.execution import JobLimits
from haversack_server.job import Job
from haversack_server.jobs import JobRunner
from haversack_server.ray_place import RayPlace

PACKAGES = pathlib.Path(__file__).parent / "packages"
LIMITS = JobLimits(deadline_ns=120 * 10**9)
STORE_BYTES = 80 * 2**20  # the least that a machine may have
PATIENCE_S = 60
UUIDS = {"GPU-00000001-fake", "GPU-00000002-fake"}


@contextmanager
def two_machines(folder: pathlib.Path) -> Iterator[Any]:
    """Start the cluster; ``second`` is the machine that may be taken away."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    machine = {
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
        "node_ip_address": "127.0.0.1",
    }
    with _loopback(folder):
        made: Any = importlib.import_module("ray.cluster_utils")
        first = {**machine, "num_cpus": 1, "num_gpus": 0}
        cluster = made.Cluster(initialize_head=True, head_node_args=first)
        try:
            cluster.second = cluster.add_node(**machine, num_cpus=2, num_gpus=2)
            yield cluster
        finally:
            cluster.shutdown()
            for each, handler in handlers.items():
                signal.signal(each, handler)


@contextmanager
def _loopback(folder: pathlib.Path) -> Iterator[None]:
    """Keep every part of the cluster, and this process, on the loopback; give it a fake NVML."""
    with pytest.MonkeyPatch.context() as patch:
        # Ray's word for "one machine": addresses are not exchanged for those of the network.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # it is loaded
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # A checkout may not be installed; a cluster's machines have haversack.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("LD_LIBRARY_PATH", str(fake_nvml.build(folder)))
        patch.setenv("FAKE_NVML_GPUS", "2")
        yield


def runner_on(cluster: Any) -> JobRunner:
    """Make what runs jobs there."""
    place = RayPlace(cluster.address, jobs=LIMITS.waiting_jobs)
    return JobRunner(("jobworkloads.",), (str(PACKAGES),), limits=LIMITS, place=place)


def request(name: str, job_id: str = "", **fields: Any) -> VerifyRequest:
    """Ask for a built-in workload, or for one of ``packages/jobworkloads`` as MODULE:FACTORY."""
    named = WorkloadReference(name=name)
    if ":" in name:
        named = WorkloadReference(entry_point=f"jobworkloads.{name}")
    return VerifyRequest(workload=named, job_id=job_id, keep_after_disconnect=True, **fields)


async def running(runner: JobRunner, asked: VerifyRequest) -> Job:
    """Submit a job, and wait until it runs."""
    job = runner.submit(asked)
    async with aclosing(job.events()) as events:
        async for event in events:
            if event.running:
                return job
    raise AssertionError(f"the job is over already: {job.report}")


async def report_of(job: Job) -> VerifyReport:
    """Wait for a job's end."""
    async with asyncio.timeout(PATIENCE_S):
        *_, last = [event async for event in job.events()]
    assert last.report is not None
    return last.report


def named(words: str) -> list[int]:
    """Find processes by a word of their command line."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if words in (folder / "cmdline").read_bytes().decode():
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def workers() -> list[int]:
    """Find the cluster's workers that hold jobs."""
    return named("ray::RemoteJob")


def children(pid: int) -> list[int]:
    """Find the processes that a process started."""
    found: list[int] = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has just ended
            continue
    return found


def variable(pid: int, name: str) -> str:
    """Read a variable of a process's environment."""
    lines = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    (value,) = [line.removeprefix(f"{name}=") for line in lines if line.startswith(f"{name}=")]
    return value


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def lives(pid: int) -> bool:
    """Tell whether a process is there."""
    return pathlib.Path(f"/proc/{pid}").exists()


def groups() -> Mapping[str, str]:
    """Give the state of each placement group that was not removed, by its name."""
    ray: Any = importlib.import_module("ray.util")
    table = ray.placement_group_table().values()
    return {each["name"]: each["state"] for each in table if each["state"] != "REMOVED"}


def groups_of(cluster: Any) -> Mapping[str, str]:
    """Look at them where no server is connected any more; for a thread that is not the main one."""
    ray: Any = importlib.import_module("ray")
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        return groups()
    finally:
        ray.shutdown()
