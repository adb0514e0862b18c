"""Random numbers of several devices, on an accelerator that is none but has two generators.

PyTorch's own code for several devices runs; no kernel of any does, and what a GPU draws is seen on
GPUs alone (``test_gpu.py``).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from torch.utils import backend_registration

from haversack.verify import Facet, FacetValue, VerifyVerdict

Verify = Callable[..., Awaitable[Any]]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this PyTorch lets no device be written in Python",
    ),
]


async def test_a_device_that_no_argument_lies_on_is_named_and_not_restored(verify: Verify) -> None:
    report = await verify(case="chip:one_given")
    assert report.verdict is VerifyVerdict.DIFFERENT
    rng = report.facet(Facet.RNG)
    assert rng.names == ("torch chip:1",)
    assert "a positional tensor on every device" in rng.fix_hint
    assert report.facet(Facet.INPUT_GRADIENTS).value is FacetValue.DIFFERENT
    sources = {each.source: each.restored for each in report.random_sources}
    assert {name: sources[name] for name in ("torch chip:0", "torch chip:1")} == {
        "torch chip:0": True,
        "torch chip:1": False,
    }


async def test_devices_of_all_arguments_are_restored(verify: Verify) -> None:
    report = await verify(case="chip:both_given")
    assert report.failure is None
    assert report.verdict is VerifyVerdict.EQUIVALENT
    sources = {each.source: each.restored for each in report.random_sources}
    assert sources["torch chip:0"]
    assert sources["torch chip:1"]
