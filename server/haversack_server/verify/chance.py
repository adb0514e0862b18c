"""Whether two plain runs were alike by chance: a step that asks what no seed repeats runs again.

A factor that the clock decides on is one of two: two runs are alike in every second job, and what
differs then looks as if activation checkpointing had changed it.
"""

from collections.abc import Callable
from dataclasses import replace

from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome

MORE_RUNS = 10  # a factor that is one of two is then alike in all in one job of 2048
MOST_NS = 10 * 10**9  # of steps; long ones that only write down the time shall not take for ever


def settled(runs: Outcomes, run_plain: Callable[[], Outcome]) -> Outcomes:
    """Run plain again until one run differs, where the step under probes asked such a thing."""
    if runs.watched is None or not runs.watched.asked or not _alike(runs.plain, runs.again):
        return runs
    spent_ns = 0
    for _ in range(MORE_RUNS):
        another = run_plain()
        if not _alike(runs.plain, another):
            return replace(runs, again=another)
        spent_ns += another.time_ns
        if spent_ns > MOST_NS:
            break
    return runs


def _alike(plain: Outcome, other: Outcome) -> bool:
    """Whether a run has the values of another; state may have a time in it, which is no value."""
    same_end = (plain.raised is None) is (other.raised is None)
    return same_end and not other.rows and plain.rng == other.rng
