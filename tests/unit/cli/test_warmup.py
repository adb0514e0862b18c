import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

KERNELS = Path(__file__).parents[3] / "kernels"
COLD = {
    "compiled": 47,
    "loaded": 0,
    "compile_seconds": 9.876,
    "directory": "/var/cache/haversack",
    "passed_over": [],
}
WARM = COLD | {"compiled": 0, "loaded": 5, "compile_seconds": 0.0}
NOWHERE = COLD | {"directory": None, "passed_over": ["/a: Read-only file system"]}


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Let processes end with these reports, or codes; gives the command lines as they are run."""

    def prepare(*outcomes: Any) -> list[list[str]]:
        lines: list[list[str]] = []
        following: Iterator[Any] = iter(outcomes)

        def run(line: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            lines.append(line)
            outcome = next(following)
            failed = isinstance(outcome, int)
            return subprocess.CompletedProcess(
                line, outcome if failed else 0, "" if failed else json.dumps(outcome)
            )

        monkeypatch.setattr(subprocess, "run", run)
        return lines

    return prepare


def test_a_second_process_proves_that_code_is_kept(haversack_run: Run, starts: Any) -> None:
    lines = starts(COLD, WARM)
    done = haversack_run("warmup")
    assert done.code == 0
    assert done.out.splitlines() == [
        "compiled    47 kernels in 9.9 s",
        "loaded      0",
        "kept in     /var/cache/haversack",
        "next start  loads them from there",
    ]
    assert lines == 2 * [[sys.executable, "-P", "-m", "haversack_kernels"]]


def test_what_was_loaded_needs_no_proof(haversack_run: Run, starts: Any) -> None:
    lines = starts(WARM)
    assert haversack_run("warmup", "--json").json == WARM | {"next_start_loads": True}
    assert len(lines) == 1


def test_code_that_is_not_kept_is_no_success(haversack_run: Run, starts: Any) -> None:
    starts(NOWHERE)
    done = haversack_run("warmup")
    assert done.code == 1
    assert "kept in     no folder\nnext start  compiles them again\n" in done.out
    assert done.err == "haversack: passed over /a: Read-only file system\n"


def test_a_folder_that_loses_the_code_is_found_out(haversack_run: Run, starts: Any) -> None:
    starts(COLD, COLD)
    done = haversack_run("warmup", "--json")
    assert done.code == 1
    assert done.json["next_start_loads"] is False


def test_kernels_that_do_not_compile_are_a_fault_of_ours(haversack_run: Run, starts: Any) -> None:
    starts(-11)
    done = haversack_run("warmup")
    assert done.code == 1
    assert done.err.startswith("haversack: the kernels did not compile: exit code -11")


def test_a_light_install_says_which_extra_is_missing(
    haversack_run: Run, starts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = starts()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "numba" or None)
    done = haversack_run("warmup")
    assert done.code == 1
    assert done.err == "haversack: the kernels need numba: pip install 'haversack[server]'\n"
    assert lines == []


@pytest.mark.slow  # compiles every kernel: a minute and more
def test_the_real_kernels_are_loaded_by_the_next_start(
    haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(KERNELS))
    answer = haversack_run("warmup", "--json").json
    assert answer["next_start_loads"] is True
    again = haversack_run("warmup", "--json").json
    assert (again["compiled"], again["directory"]) == (0, answer["directory"])
    assert again["loaded"] > 0
