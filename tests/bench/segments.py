"""The chain with segments against plain loops: ``python -m tests.bench.segments``.

Prints, for n blocks of five options and 500 slots, time and memory of both in one run. Times are of
this thread's CPU clock, the least of several; memory is that of the tables.
"""

import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numba
import numpy as np
from tests import oracle_segments as oracle
from tests.bench.table import Row

from haversack_kernels import arena, segments

SLOTS = 500
OPTIONS = 5
MIB = 1 << 20
MEASURED_BEFORE = {34: "16 ms", 66: "157 ms", 130: "1700 ms and 97 MB"}
"""Rotor with options in numba, at as many options and slots, on a CPU with two cores."""
RUNS = 5


def blocks_of_a_transformer(blocks: int, seed: int = 0) -> oracle.Chain:
    """Jitter a GPT-2 block's measured option table; gradients so far raise the backward bases.

    Per block, in MiB: save 27, two selective policies 17 and 13, attention only 3, recompute 1.5.
    """
    random = np.random.default_rng(seed)

    def jittered(values: list[float], factor: float) -> oracle.Int64:
        drawn = np.tile(values, blocks) * factor * (1 + 0.1 * random.random(blocks * len(values)))
        return drawn.astype(np.int64)

    extra = jittered([0, 0.2, 0.4, 0.8, 1], 1e6)
    return oracle.Chain(
        offsets=np.arange(blocks + 1) * OPTIONS,
        retained=jittered([27, 16.5, 13.5, 3, 1.5], MIB),
        forward_peak=jittered([28.5, 22.5, 21, 15, 13.5], MIB),
        backward_peak=jittered([36.8] * OPTIONS, MIB),
        extra=extra,
        inside=np.tile([True, False, False, False, True], blocks),
        plain_peak=jittered([13.5], MIB),
        plain_time=jittered([1], 1e6),
        boundary=jittered([1.5], MIB),
        gathered=np.zeros(blocks, dtype=np.int64),
        forward_base=np.zeros(blocks, dtype=np.int64),
        backward_base=np.arange(blocks, dtype=np.int64)[::-1] * MIB // 4,
    )


def equal_blocks(blocks: int) -> oracle.Chain:
    """Repeat the first block, under equal bases, as with accumulated gradients."""
    one = blocks_of_a_transformer(1)
    repeated = {name: np.tile(getattr(one, name), blocks) for name in oracle.Chain._fields[1:]}
    return oracle.Chain(offsets=np.arange(blocks + 1) * OPTIONS, **repeated)


def least_ms(call: Callable[[], object], runs: int) -> float:
    """Return the least CPU time of several calls in milliseconds."""
    taken = []
    for _ in range(runs):
        start = time.thread_time()
        call()
        taken.append(time.thread_time() - start)
    return min(taken) * 1e3


def peak_mb(call: Callable[[], object]) -> float:
    """Return the most memory that numpy arrays took during the call, in MB."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


class Figures(NamedTuple):
    """Hold the figures of a line of the table."""

    ours_ms: float
    refined_ms: float
    plain_ms: float
    ours_mb: float
    plain_mb: float
    extra: int
    refined: int
    bound: int


def compare(chain: oracle.Chain, share: float) -> Figures:
    """Solve both ways, with a budget of ``share`` of what all blocks retain when saved."""
    blocks = chain.offsets.size - 1
    budget = int(chain.retained[::OPTIONS].sum() * share)
    unit = -(-budget // SLOTS)
    slots = budget // unit
    ours = segments.Chain(*chain)

    extra = segments.solve(ours, budget, unit=unit, refine=False).extra
    assert extra == oracle.extra_by_plain_loops(chain, unit, slots)[-1]
    arena.free_idle()
    return Figures(
        ours_mb=peak_mb(lambda: segments.solve(ours, budget, unit=unit, refine=False)),
        ours_ms=least_ms(lambda: segments.solve(ours, budget, unit=unit, refine=False), RUNS),
        refined_ms=least_ms(lambda: segments.solve(ours, budget, unit=unit), RUNS),
        plain_ms=least_ms(lambda: oracle.extra_by_plain_loops(chain, unit, slots), 2),
        plain_mb=8 * (blocks + 1) ** 2 * (slots + 1) / 1e6,
        extra=extra,
        refined=segments.solve(ours, budget, unit=unit).extra,
        bound=segments.lower_bound(ours, budget, unit=unit) or 0,
    )


def rows() -> Iterator[Row]:
    """Show chains at 30 % of what saving everything retains, with times and tables of both."""
    segments.warm_up()
    chains = {f"{blocks} jittered": blocks_of_a_transformer(blocks) for blocks in MEASURED_BEFORE}
    for name, chain in (chains | {"130 equal": equal_blocks(130)}).items():
        figures = compare(chain, 0.3)
        what = f"{name} blocks, {OPTIONS} options, {SLOTS} slots"
        yield Row("segments", f"{what}: ours", figures.ours_ms, "ms")
        yield Row("segments", f"{what}: refined in bytes", figures.refined_ms, "ms")
        yield Row(
            "segments", f"{what}: plain loops / ours", figures.plain_ms / figures.ours_ms, "x"
        )
        yield Row("segments", f"{what}: table", figures.ours_mb, "MB")
        gap = 1e6 * (figures.refined - figures.bound) / figures.refined
        yield Row("segments", f"{what}: refined, above the bound", gap, "ppm")


def line(name: str, blocks: int, share: float, figures: Figures) -> str:
    """Write the figures: what refining gains, and what it can still be above the least in bytes."""
    gained, open_gap = figures.extra - figures.refined, figures.refined - figures.bound
    return (
        f"{name:8} {blocks:5} {share:6.2f} {figures.ours_ms:8.2f} {figures.refined_ms:8.2f} "
        f"{figures.plain_ms:8.1f} {figures.plain_ms / figures.ours_ms:7.1f} "
        f"{figures.ours_mb:7.1f} {figures.plain_mb:8.1f} "
        f"{gained / figures.extra:8.2%} {open_gap / figures.refined:8.2%}"
    )


def main() -> None:
    """Print the machine, a line per chain and budget, and the figures to beat."""
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        f"numba {numba.__version__}, numpy {np.__version__}"
    )
    print(f"{OPTIONS} options, {SLOTS} slots; budget as a share of what saving everything retains")
    print(
        "chain    blocks budget  ours ms  refined plain ms   ratio ours MB plain MB   gained "
        "open gap"
    )
    segments.warm_up()
    for blocks in MEASURED_BEFORE:
        for share in (0.15, 0.3, 0.6):
            chain = blocks_of_a_transformer(blocks)
            print(line("jittered", blocks, share, compare(chain, share)), flush=True)
    print(line("equal", 130, 0.15, compare(equal_blocks(130), 0.15)))
    print("rotor with options, same sizes, measured before elsewhere:", end=" ")
    print("; ".join(f"n={blocks} {figures}" for blocks, figures in MEASURED_BEFORE.items()))


if __name__ == "__main__":
    main()
