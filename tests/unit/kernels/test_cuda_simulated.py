"""The CUDA kernels against the CPU and the oracles, in numba's simulator: a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_kernels_do_in_the_simulator_what_the_cpu_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.simulated"],
        cwd=ROOT,
        env=os.environ
        | {
            "NUMBA_ENABLE_CUDASIM": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), "."]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    failed = {name: why for name, why in outcome.items() if why is not None}
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert len(outcome) == 25
