"""An error names the option that was typed, whatever field of the request it is about."""

from collections.abc import Callable
from typing import Any

import pytest

from haversack.errors import (
    DeadlineError,
    InternalError,
    InvalidRequestError,
    NotSupportedError,
    UnavailableError,
)

Run = Callable[..., Any]

VERIFY = ("verify", "--workload", "mlp")
PLAN = ("plan", "--workload", "mlp", "--budget", "1MiB")
ESTIMATE = ("estimate", "--parameter-count", "1000")


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ((*VERIFY, "--resume", "2", "--steps-before", "0"), "--steps-before"),
        ((*VERIFY, "--resume", "2", "--steps-after", "101"), "--steps-after"),
        ((*VERIFY, "--resume", "2", "--saved-as", "zip"), "--saved-as"),
        ((*VERIFY, "--resume", "2:0"), "--resume"),
        ((*VERIFY, "--resume", "2", "--world-size", "4"), "--world-size"),
        ((*VERIFY, "--steps-before", "3"), "--steps-before"),
        ((*VERIFY, "--leave-out-each"), "--leave-out-each"),
        ((*VERIFY, "--weights", ""), "--weights"),
        ((*VERIFY, "--shard", "ddp"), "--world-size"),
        ((*VERIFY, "--world-size", "2"), "--shard"),
        ((*VERIFY, "--shard", "ddp", "--world-size", "1"), "--world-size"),
        ((*ESTIMATE, "--device", "8xh100-80gb", "--tp", "3"), "--device"),
        ((*ESTIMATE, "--gpus", "8", "--tp", "3"), "--gpus"),
        ((*ESTIMATE, "--gpus", "2", "--expert-tp", "3"), "--expert-tp"),
        ((*ESTIMATE, "--gpus", "2", "--ep", "3"), "--ep"),
        (("estimate", "--launch", ""), "--launch"),
        ((*ESTIMATE, "--state-bytes", "1,1,1"), "--parameter-count, --state-bytes"),
        ((*PLAN, "--model", "examples/llama3_8b.json"), "--model, --workload"),
    ],
)
def test_an_error_names_the_option_that_was_typed(
    client: Any, haversack_run: Run, line: tuple[str, ...], flag: str
) -> None:
    done = haversack_run(*line)
    assert done.code == 2
    assert done.err.splitlines()[0].endswith(f"({flag})"), done.err
    assert client.asked == []


@pytest.mark.parametrize(
    ("error", "typed", "flag", "code"),
    [
        (NotSupportedError("parallelism.tp: not so; do without"), ("--tp", "2"), "--tp", 1),
        (NotSupportedError("parallelism.sharding: no"), ("--zero", "3"), "--zero", 1),
        (NotSupportedError("parallelism.offload_parameters: no"), (), "--offload", 1),
        (NotSupportedError("budget.kind: give another"), (), "--budget-kind", 1),
        (InvalidRequestError("no", field="parallelism"), ("--gpus", "2"), "--gpus", 2),
        (InvalidRequestError("no", field="training.optimizer"), (), "--optimizer", 2),
        (DeadlineError("the deadline passed"), (), "--timeout", 1),
        (UnavailableError("no server answers at x:1: no"), (), "--server", 1),
    ],
)
def test_an_error_of_the_server_names_its_option(
    client: Any, haversack_run: Run, error: Exception, typed: tuple[str, ...], flag: str, code: int
) -> None:
    client.planned = error
    done = haversack_run(*PLAN, *typed)
    assert done.code == code
    assert done.err == f"haversack: {error} ({flag})\n"


@pytest.mark.parametrize("error", [NotSupportedError("h.0 is compiled: no"), InternalError("no")])
def test_an_error_that_is_of_no_field_names_none(
    client: Any, haversack_run: Run, error: Exception
) -> None:
    client.planned = error
    done = haversack_run(*PLAN)
    assert done.code == 1
    assert "(--" not in done.err
