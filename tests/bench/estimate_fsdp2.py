"""FSDP2's peak against PyTorch's own tracker: the grid of ``tests.bench.fsdp2``, as gates.

It runs in a process of its own, since its process group is a fake one.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

from tests.bench.fsdp2 import LIMIT_PERCENT
from tests.bench.table import Row

SECTION = "fsdp2"


def tracked() -> Iterator[Row]:
    """Every case of the grid: how far the peak is away, and whether it is in the same phase."""
    command = [sys.executable, "-m", "tests.bench.fsdp2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            found = json.loads(line)
            what = f"{found['case']}: {found['phase']}, expected in {found['expected_phase']}"
            gate = f"<= {LIMIT_PERCENT:g}"
            yield Row(SECTION, what, abs(found["percent"]), "%", gate, found["confirmed"])
