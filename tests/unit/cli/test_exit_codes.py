from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haversack import errors
from haversack.cli import entry, exits
from haversack.cli.exits import Exit
from haversack.estimate import Estimate, EstimateVerdict
from haversack.plan import Plan, PlanStatus
from haversack.verify import VerifyReport, VerifyVerdict

Run = Callable[..., Any]

ESTIMATE = ("estimate", "--parameter-count", "1000", "--gpu-memory", "80GiB")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("UNSPECIFIED", 0), ("FITS", 0), ("TIGHT", 3), ("DOES_NOT_FIT", 4), ("UNKNOWN", 5)],
)
def test_an_estimate_exits_with_its_verdict(
    client: Any, haversack_run: Run, verdict: str, code: int
) -> None:
    client.estimated = Estimate(verdict=EstimateVerdict[verdict], reason="as it is")
    assert haversack_run(*ESTIMATE).code == code
    assert haversack_run(*ESTIMATE, "--json").code == code


@pytest.mark.parametrize(
    ("status", "code"), [("UNSPECIFIED", 5), ("OPTIMAL", 0), ("FEASIBLE", 0), ("INFEASIBLE", 4)]
)
def test_a_plan_exits_with_its_status(
    client: Any, haversack_run: Run, write: Callable[[str, str], str], status: str, code: int
) -> None:
    client.planned = Plan(status=PlanStatus[status])
    path = write("candidates.json", '{"size_bytes": [3], "gain": [5]}')
    assert haversack_run("plan", "--candidates", path, "--budget", "4").code == code


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("UNSPECIFIED", 5), ("EQUIVALENT", 0), ("DIFFERENT", 4), ("INCONCLUSIVE", 5), ("FAILED", 1)],
)
def test_a_verify_job_exits_with_its_verdict(
    client: Any, haversack_run: Run, verdict: str, code: int
) -> None:
    client.reports(VerifyReport(verdict=VerifyVerdict[verdict]))
    assert haversack_run("verify", "--workload", "mlp").code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequestError("too small", field="parallelism.tp"), 2),
        (errors.NotFoundError("no workload 'x'"), 2),
        (errors.NotSupportedError("not yet"), 1),
        (errors.MissingExtraError("pip install 'haversack[server]'"), 1),
        (errors.OverloadedError("come back"), 1),
        (errors.DeadlineError("too late"), 1),
        (errors.CallCancelledError("cancelled"), 1),
        (errors.UnavailableError("no server answers"), 1),
        (errors.InternalError("fault 17"), 1),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    client: Any, haversack_run: Run, error: errors.HaversackError, code: int
) -> None:
    client.estimated = error
    done = haversack_run(*ESTIMATE, "--json")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"haversack: {error}")
    assert done.err.count("\n") == 1


def test_every_verdict_and_status_has_an_exit_code() -> None:
    for verdict in EstimateVerdict:
        assert exits.of_answer(Estimate(verdict=verdict)) in Exit
    for status in PlanStatus:
        assert exits.of_answer(Plan(status=status)) in Exit
    for outcome in VerifyVerdict:
        assert exits.of_answer(VerifyReport(verdict=outcome)) in Exit


def test_an_unexpected_error_exits_1_without_a_traceback(client: Any, haversack_run: Run) -> None:
    client.estimated = ZeroDivisionError("division by\nzero")
    done = haversack_run(*ESTIMATE)
    assert done.code == 1
    assert done.err.startswith("haversack: an error of ours, ZeroDivisionError: division by zero")
    assert "report" in done.err
    assert done.err.count("\n") == 1


def test_the_debug_variable_asks_for_the_traceback(
    client: Any, haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAVERSACK_DEBUG", "1")
    client.estimated = ZeroDivisionError("division by zero")
    assert "Traceback (most recent call last)" in haversack_run(*ESTIMATE).err


def test_an_interrupt_exits_130(
    client: Any, haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "estimate", interrupt)
    done = haversack_run(*ESTIMATE)
    assert done.code == 130
    assert done.err.strip() == "haversack: interrupted"


def test_a_reader_that_goes_away_does_not_change_the_exit_code(
    client: Any, haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []

    class Gone:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            return 99

    client.estimated = Estimate(verdict=EstimateVerdict.DOES_NOT_FIT, reason="too much")
    monkeypatch.setattr("os.dup2", lambda source, target: closed.append(target))
    monkeypatch.setattr("sys.stdout", Gone())
    assert haversack_run(*ESTIMATE, "--json").code == 4
    assert closed == [99]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
@pytest.mark.parametrize("arguments", [ESTIMATE, (*ESTIMATE, "--json"), ("--help",)])
def test_an_output_that_takes_nothing_is_one_sentence(
    client: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert entry.run(arguments) == Exit.FAILED
    sentence = "haversack: cannot write to standard output: No space left on device\n"
    assert capsys.readouterr().err == sentence


@pytest.mark.parametrize("arguments", [ESTIMATE, (*ESTIMATE, "--json"), ("--version",)])
def test_an_output_that_is_closed_is_one_sentence(
    client: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdout", None)
    assert entry.run(arguments) == Exit.FAILED
    sentence = "haversack: cannot write to standard output: it is closed\n"
    assert capsys.readouterr().err == sentence
