"""A job of given weights: they are read in its own process, and what is no weights ends it."""

import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from tests.unit.verify.test_worker_weights import write

from haversack.errors import InvalidRequestError
from haversack.verify import FailureReason, VerifyResume, VerifyVerdict, VerifyWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]
ONES = {"weight": torch.ones(6, 6), "bias": torch.ones(6)}


async def test_weights_are_those_of_the_file_and_the_report_says_so(
    verify: Verify, tmp_path: pathlib.Path
) -> None:
    file = write(tmp_path / "ones.safetensors", ONES)
    report = await verify(case="ranks:raising_unless_ones", weights=str(file))
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    assert f"Every run has the weights of {file}" in report.assumptions


async def test_a_pickle_under_the_name_of_weights_ends_its_job(
    verify: Verify, tmp_path: pathlib.Path
) -> None:
    torch.save(ONES, tmp_path / "ones.safetensors")
    report = await verify(case="ranks:raising_unless_ones", weights=str(tmp_path))
    assert report.failure.reason is FailureReason.BAD_WORKLOAD
    assert "header" in report.failure.message


async def test_what_is_not_allowed_never_becomes_a_job(
    verify: Verify, tmp_path: pathlib.Path
) -> None:
    refused = {str(tmp_path / "w.bin"): "hold a pickle", "/etc": "not allowed", "w": "absolute"}
    for path, words in refused.items():
        with pytest.raises(InvalidRequestError, match=words):
            await verify(case="ranks:raising_unless_ones", weights=path)
    with pytest.raises(InvalidRequestError, match="weights: a resume job trains"):
        await verify(
            "resume-whole",
            weights=str(tmp_path),
            resume=VerifyResume(),
            world=VerifyWorld(size=2),
        )
