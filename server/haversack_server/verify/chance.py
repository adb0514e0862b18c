"""Whether two plain runs were alike by chance: a step that asks what no seed repeats runs again.

A factor that the clock decides on is one of two: two runs are alike in every second job, and what
differs then looks as if activation checkpointing had changed it.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from haversack_server.verify.comparison import Closeness
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome

MORE_RUNS = 40  # what changes one run of four is then alike in all in one job of 175,000
MOST_NS = 10 * 10**9  # of the clock; long ones that only write down the time are not run again


def settled(runs: Outcomes, run_plain: Callable[[], Outcome]) -> Outcomes:
    """Run plain again until one run differs, where the step under probes asked such a thing.

    Once in any case; then as long as another run as long as the last fits in the time.
    """
    if runs.watched is None or not runs.watched.asked or not _alike(runs.plain, runs.again):
        return runs
    begun_ns, took_ns = time.monotonic_ns(), 0
    for _ in range(MORE_RUNS):
        before_ns = time.monotonic_ns()
        if before_ns - begun_ns + took_ns > MOST_NS:
            break
        another = run_plain()
        if not _alike(runs.plain, another):
            return replace(runs, again=another)
        took_ns = time.monotonic_ns() - before_ns
    return runs


def _alike(plain: Outcome, other: Outcome) -> bool:
    """Whether a run has the values of another; state may have a time in it, which is no value.

    Values that kernels' noise moves within their tolerance are alike here.
    """
    same_end = (plain.raised is None) is (other.raised is None)
    differs = any(row.closeness is Closeness.DIFFERENT for row in other.rows)
    return same_end and not differs and plain.rng == other.rng
