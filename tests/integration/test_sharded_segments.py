"""Segments on two real ranks: the same numbers, and no collective more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")


@pytest.mark.slow
def test_two_ranks_compute_the_same_with_segments(tmp_path: Path) -> None:
    program = Path(__file__).with_name("segments_two_ranks.py")
    path = os.pathsep.join(str(program.parents[2] / each) for each in ("client", "server", "."))
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), str(tmp_path / "gloo")],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for said, failed in (rank.communicate(timeout=180) for rank in ranks):
        # Four microbatches: a reduction of each of five units, a gather in each pass.
        assert said == f"{[4 * 5, 4 * (5 + 5)]}\n", said + failed
