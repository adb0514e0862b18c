"""Times alternatives against each other: interleaved, in thread CPU time, by medians.

On a shared machine the clock rate drifts between runs, so only ratios within a round count.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median

Work = Callable[[], object]


class Times:
    """Hold the nanoseconds of each alternative in each round."""

    def __init__(self, rounds: Mapping[str, list[int]]) -> None:
        self.rounds = rounds

    def ms(self, name: str) -> float:
        """Return the median of an alternative in milliseconds."""
        return median(self.rounds[name]) / 1e6

    def ratio(self, slow: str, fast: str) -> float:
        """Return how many times as long as ``fast`` it takes ``slow``: the median over rounds."""
        pairs = zip(self.rounds[slow], self.rounds[fast], strict=True)
        return median(one / other for one, other in pairs)


ENOUGH_NS = 4 * 10**9
"""Time after which no further round begins, so that slow peers do not take the whole run."""


def race(alternatives: Mapping[str, Work], rounds: int = 7) -> Times:
    """Run every alternative once to warm up, then in turn for a number of rounds, or for long."""
    taken: dict[str, list[int]] = {name: [] for name in alternatives}
    for work in alternatives.values():
        work()
    for _ in range(rounds):
        for name, work in alternatives.items():
            start = time.thread_time_ns()
            work()
            taken[name].append(time.thread_time_ns() - start)
        if sum(map(sum, taken.values())) > ENOUGH_NS:
            break
    return Times(taken)
