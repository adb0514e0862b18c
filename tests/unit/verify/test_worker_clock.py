"""Clocks of the worker: what they count, and how finely they move."""

import subprocess
import sys

from haversack_server.worker.clock import processor_ns, tick_ns


def test_processor_time_moves_finely_where_cpu_time_is_limited() -> None:
    code = """
import resource
from haversack_server.worker.clock import processor_ns, tick_ns

_, most = resource.getrlimit(resource.RLIMIT_CPU)
resource.setrlimit(resource.RLIMIT_CPU, (3600, most))
print(min(tick_ns(processor_ns) for _ in range(9)))
"""
    path = "import sys; sys.path[:0] = " + repr([each for each in sys.path if each])
    told = subprocess.run([sys.executable, "-c", path + code], capture_output=True, check=True)
    assert 0 < int(told.stdout) < 1_000_000


def test_a_tick_is_how_far_a_clock_moves_at_once() -> None:
    readings = iter((5, 5, 5, 9, 12))
    assert tick_ns(lambda: next(readings)) == 4


def test_processor_time_counts_what_is_computed() -> None:
    before_ns = processor_ns()
    sum(range(1_000_000))
    assert processor_ns() > before_ns
