"""The same jobs on an attached GPU. Skipped where there is none, as on most machines that test."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import Facet, FacetValue, VerifyVerdict
from haversack_server.verify.admissible import attached_gpus
from haversack_server.verify.catalog import WORKLOADS

Verify = Callable[..., Awaitable[Any]]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not attached_gpus(), reason="no GPU is attached"),
    pytest.mark.asyncio(loop_scope="session"),
]


@pytest.mark.parametrize("name", ["mlp", "gpt2-tiny", "conv-batchnorm"])
async def test_a_built_in_workload_has_its_verdict_on_a_gpu(verify: Verify, name: str) -> None:
    report = await verify(name, device="cuda:0")
    assert report.failure is None
    assert report.verdict is WORKLOADS[name].expected_verdict
    assert report.environment.device == "cuda:0"
    assert report.memory.plain_peak_bytes > 0


async def test_the_random_state_of_the_gpu_is_restored_and_compared(verify: Verify) -> None:
    report = await verify("mlp", device="cuda:0", preserve_rng_state=False)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert report.facet(Facet.RNG).value is FacetValue.DIFFERENT
    assert "torch cuda:0" in report.facet(Facet.RNG).names
