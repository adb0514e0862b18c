"""The CUDA benchmark's program: what it says without a device, and that it runs at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu", *arguments],
        cwd=ROOT,
        env=os.environ
        | {
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), "."]),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_device_it_refuses_in_one_sentence() -> None:
    done = run()
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "no figure: this needs a visible NVIDIA GPU, its driver and numba-cuda"
    ]


@pytest.mark.slow
def test_simulated_it_measures_everything_and_claims_nothing(tmp_path: Path) -> None:
    done = run("--simulate", "--out", str(tmp_path / "gpu.json"), "--seconds", "100000")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert result == json.loads(done.stdout.splitlines()[-1])
    assert result["evidence"] is False
    assert result["left_out"] == []
    assert "no evidence of any speed" in result["machine"]["card"]
    identical = [row for row in result["rows"] if row["unit"] == "identity"]
    assert len(identical) == 3
    assert all(row["reached"] for row in identical)
    assert {row["section"] for row in result["rows"]} == {
        *("start", "copy", "launch", "same", "one", "fused", "even", "batch", "ceiling", "trace")
    }
    assert [row for row in result["rows"] if row["gate"]] == identical
