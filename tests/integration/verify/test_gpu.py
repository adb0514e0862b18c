"""Jobs on an attached GPU. Skipped where there is none, as on most machines that test.

Each job loads torch, and each of its runs opens a context of its own, which takes seconds: few
jobs, and each shows several things. Together they are to take less than three minutes on one GPU.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.verify.conftest import report_of

from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import (
    Facet,
    FacetValue,
    FailureReason,
    VerifyRequest,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.gpus.attached import attached_gpus
from haversack_server.jobs import JobRunner

Verify = Callable[..., Awaitable[Any]]
MIB = 1 << 20
GPUS = attached_gpus().gpus
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no GPU is attached"),
    pytest.mark.asyncio(loop_scope="session"),
]
two_gpus = pytest.mark.skipif(len(GPUS) < 2, reason="it needs two GPUs")


async def test_a_built_in_workload_has_its_verdict_on_a_gpu(verify: Verify) -> None:
    report = await verify("gpt2-tiny", device="cuda:0")
    assert report.failure is None
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.environment.device == "cuda:0"
    (gpu,) = report.environment.gpus
    assert (gpu.device, gpu.uuid, gpu.name) == ("cuda:0", GPUS[0].uuid, GPUS[0].name)
    # What NVML calls the GPU of that number is the one that CUDA gave the job; without NVML it has
    # no name beforehand.
    assert report.environment.device_name
    assert gpu.name in ("", report.environment.device_name)
    sources = {each.source: each.restored for each in report.random_sources}
    assert sources == {"torch cuda:0": True}


async def test_a_generator_that_no_argument_of_a_region_lies_on_is_not_restored(
    verify: Verify,
) -> None:
    report = await verify(case="gpu:inside", device="cuda:0")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert report.facet(Facet.RNG).names == ("torch cuda:0",)
    sources = {each.source: each.restored for each in report.random_sources}
    assert sources == {"torch cpu": True, "torch cuda:0": False}


async def test_memory_is_the_allocators_count_to_the_byte(verify: Verify) -> None:
    report = await verify(case="gpu:chain", device="cuda:0")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    # Seven results of sines are kept beside the input, which was there before.
    memory = report.memory
    assert memory.plain_retained_bytes - memory.checkpointed_retained_bytes == 7 * MIB
    assert memory.plain_peak_bytes >= memory.plain_retained_bytes
    assert "allocator" in memory.method


async def test_a_kernel_that_adds_in_any_order_leaves_no_measure_and_no_difference(
    verify: Verify,
) -> None:
    # The order of atomics is made into what no tolerance holds: two plain runs differ by it.
    report = await verify(case="gpu:atomics", device="cuda:0", args_json='{"scale": 1000000000}')
    assert report.failure is None
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert report.facet(Facet.OUTPUTS).value is FacetValue.INCONCLUSIVE
    assert FacetValue.DIFFERENT not in {
        report.facet(facet).value for facet in (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
    }


async def test_faults_of_the_device_end_their_jobs_and_the_next_has_the_gpu_to_itself(
    runner: JobRunner,
) -> None:
    asked = [
        VerifyRequest(
            workload=WorkloadReference(entry_point=f"jobworkloads.gpu:{name}"), device="cuda:0"
        )
        for name in ("out_of_bounds", "too_large")
    ]
    reports = await asyncio.gather(*(report_of(runner, request) for request in asked))
    reasons = [report.failure.reason for report in reports if report.failure is not None]
    assert reasons == [FailureReason.DEVICE_FAULT, FailureReason.OUT_OF_MEMORY]


@two_gpus
@pytest.mark.parametrize("sharding", [Sharding.REPLICATED, Sharding.FSDP2])
async def test_ranks_have_a_gpu_each_and_speak_over_nccl(
    verify: Verify, sharding: Sharding
) -> None:
    world = VerifyWorld(size=2, sharding=sharding)
    report = await verify("gpt2-tiny", device="cuda:0", world=world)
    assert report.failure is None
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert (report.environment.backend, report.sharded.backend) == ("nccl", "nccl")
    assert [rank.device for rank in report.sharded.ranks] == ["cuda:0", "cuda:1"]
    assert all(rank.plain_peak_bytes > 0 for rank in report.sharded.ranks)
    assert any("several machines" in sentence for sentence in report.evidence.does_not_prove)


@two_gpus
async def test_generators_of_two_gpus_are_told_apart(verify: Verify) -> None:
    asked: dict[str, Any] = {"case": "gpu:split", "device": "cuda:0", "device_count": 2}
    report = await verify(args_json='{"given": 1}', **asked)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert report.facet(Facet.RNG).names == ("torch cuda:1",)
    assert [gpu.uuid for gpu in report.environment.gpus] == [gpu.uuid for gpu in GPUS[:2]]
    sources = {each.source: each.restored for each in report.random_sources}
    assert sources == {"torch cuda:0": True, "torch cuda:1": False}
    report = await verify(args_json='{"given": 2}', **asked)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert all(each.restored for each in report.random_sources)
