"""Questions on top of an estimate, asked as a user asks them: through the whole stack."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from haversack.cli import entry

ROOT = Path(__file__).parents[2]
RUN = "--model examples/llama3_8b.json --gpus 8 --zero 3 --seq 8192 --microbatch 2"


class Asked:
    """Runs a line as if it were typed in the root of the repository."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, line: str) -> tuple[int, str]:
        """Give exit code and standard output."""
        code = entry.run(shlex.split(line))
        out, err = self._capfd.readouterr()
        assert err == ""
        return code, out

    def json(self, line: str) -> tuple[int, Any]:
        """Give the exit code and the one object on standard output."""
        code, out = self(f"{line} --json")
        return code, json.loads(out)


@pytest.fixture
def asked(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    return Asked(capfd)


def test_an_error_is_explained(asked: Asked) -> None:
    line = (
        "CUDA out of memory. Tried to allocate 7.83 GiB. GPU 3 has a total capacity of 79.15 GiB "
        "of which 1.42 GiB is free."
    )
    code, out = asked(f"explain-oom {shlex.quote(line)} {RUN}")
    assert code == 0
    words = " ".join(out.split())
    assert "logits in fp32 (16,384 tokens x 128,256 logits of a token x 4 bytes)" in words
    assert "recompute every layer" in words
    assert max(map(len, out.splitlines())) <= 80


def test_what_fits_is_found_and_fits(asked: Asked) -> None:
    code, answer = asked.json(f"fit {RUN} --gpu-memory 80GiB")
    assert code == 0
    longest = int(answer["max_seq"])
    assert 0 < longest < 8192
    shorter = RUN.replace("8192", str(longest))
    assert asked.json(f"estimate {shorter} --gpu-memory 80GiB --brief")[0] == 0
    longer = RUN.replace("8192", str(longest + 1))
    assert asked.json(f"estimate {longer} --gpu-memory 80GiB --brief")[0] == 3
    cheapest = answer["fitting_changes"][0]
    assert int(cheapest["limited"]["high_bytes"]) <= 80 * 2**30
    assert len(answer["searches"]) == 4


def test_every_setting_is_turned(asked: Asked) -> None:
    code, answer = asked.json(f"whatif {RUN} --gpu-memory 80GiB")
    assert code == 0
    rows = answer["what_ifs"]
    deltas = [int(each["delta_bytes"]) for each in rows]
    assert deltas == sorted(deltas)
    assert {"zero 1", "fsdp", "tp 2", "recompute full", "seq 4096"} <= {row["name"] for row in rows}
    assert answer["collectives"]


def test_a_saved_answer_is_held_against_a_request(asked: Asked, tmp_path: Path) -> None:
    saved = tmp_path / "base.json"
    saved.write_text(asked(f"estimate {RUN} --json")[1])
    code, out = asked(f"diff {saved} examples/request.json --fail-above 2%")
    assert code == 0
    assert out.startswith("WITHIN")
    back, answer = asked.json(f"diff examples/request.json {saved} --fail-above 2%")
    assert back == 4
    assert answer["failed"]
    assert answer["delta_bytes"] == sum(term["delta_bytes"] for term in answer["terms"])


def test_a_measured_peak_comes_back_beside_the_expected_one(asked: Asked) -> None:
    code, answer = asked.json(f"estimate {RUN} --gpu-memory 80GiB --measured peak=75GiB")
    assert code == 4  # the verdict stays the estimate's
    assert answer["residuals"][0]["measured_bytes"] == str(75 * 2**30)
    assert answer["calibration"]["basis"] == "BASIS_MEASURED"
    assert answer["basis"] == "BASIS_ANALYTIC"


def test_the_package_is_the_command() -> None:
    paths = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    done = subprocess.run(
        [sys.executable, "-m", "haversack", "--version"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("haversack ")
