"""Segments on two real ranks: the same numbers, and no collective more."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")

from tests.integration.gloo_ranks import run_ranks


@pytest.mark.slow
def test_two_ranks_compute_the_same_with_segments(tmp_path: Path) -> None:
    for said, failed in run_ranks("segments_two_ranks.py", 2, tmp_path):
        # Four microbatches: a reduction of each of five units, a gather in each pass.
        assert said == f"{[4 * 5, 4 * (5 + 5)]}\n", said + failed
