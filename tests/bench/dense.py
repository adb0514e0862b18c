"""The dense knapsack DP against the machine's limits, its peers and itself.

    python -m tests.bench.dense [--json] [--only SECTION ...] [--write PAGE]

Every ratio is of one interleaved run in thread CPU time; lost ones are printed too. Absolute
figures depend on the machine and on who shares it.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
from tests.bench import machine
from tests.bench.dense_limits import INT32, INT64, Halves, RawSweep, Shifts, add_one, raw_sweep
from tests.bench.dense_peers import or_tools, torch_dp
from tests.bench.instances import Instance, make
from tests.bench.paired import race
from tests.bench.report import as_markdown, figures, options, told
from tests.bench.table import Row, at_least, at_most

from haversack_kernels import arena, dense, dense_rows
from haversack_kernels.dense_items import reduced
from haversack_kernels.dense_memory import need_for_one_sparing
from haversack_kernels.dense_rows import CellType
from haversack_kernels.dense_sweep import WHOLE_ROW

BEYOND_INT32 = 1 << 32
"""What gains are multiplied by so that cells are int64."""


def limit() -> Iterator[Row]:
    """Hold raw sweeps, decisions included, against copies of as many bytes in L2."""
    yield from _against_copies(50_000, INT64)
    yield from _against_copies(100_000, INT32)


def _against_copies(capacity: int, kind: CellType) -> Iterator[Row]:
    raw = raw_sweep(500, capacity, 2 * capacity // 500, kind)
    halves, shifts = Halves(raw.row), Shifts(raw)
    passes, ends = halves.times // 2, raw.one_by_one()
    times = race(
        {
            "sweep": lambda: raw.run(ends, WHOLE_ROW),
            "copy": halves.copy,
            "compiled copy": halves.copy_compiled,
            "shift": shifts.shift,
            "add one": lambda: add_one(shifts.row, passes),
        }
    )
    rate = raw.cells / times.ms("sweep") / 1e6
    copied = halves.cells / min(times.ms("copy"), times.ms("compiled copy")) / 1e6
    shifted = shifts.cells / times.ms("shift") / 1e6
    added = shifts.row.size * passes / times.ms("add one") / 1e6
    what = f"500 x {capacity} {raw.row.dtype}, {raw.row.nbytes >> 10} KiB"
    yield Row("limit", f"sweep with decisions, {what}", rate, "Gcell/s")
    yield Row("limit", f"copy of {2 * raw.row.itemsize} B a cell", copied, "Gcell/s")
    yield at_least("limit", "share of the copy limit", 100 * rate / copied, 85, "%")
    yield Row("limit", "share of memmove by each size within the row", 100 * rate / shifted, "%")
    yield Row("limit", "share of row += 1, which reads no second cell", 100 * rate / added, "%")


def peers() -> Iterator[Row]:
    """Hold all budgets with one plan traced, and one budget, against torch and OR-Tools."""
    for n in (1000, 5000):
        for family in ("uncorrelated", "strongly correlated", "subset-sum", "transformer, uneven"):
            yield from _against_peers(make(family, n, 100_000))


def _against_peers(instance: Instance) -> Iterator[Row]:
    family, sizes, gains, capacity = instance
    torch_solves, or_tools_solves = torch_dp(instance), or_tools(instance)
    _check_gain(dense.solve_one(sizes, gains, capacity).gain, torch_solves(), or_tools_solves())
    raw = RawSweep(sizes, gains, capacity, INT32)
    ends = raw.one_by_one()
    times = race(
        {
            "raw": lambda: raw.run(ends, WHOLE_ROW),
            "all": lambda: dense.solve_all(sizes, gains, capacity).trace(capacity),
            "one": lambda: dense.solve_one(sizes, gains, capacity),
            "torch": torch_solves,
            "or-tools": or_tools_solves,
        },
        rounds=5,
    )
    what = f"{sizes.size} x {capacity} {family}"
    yield Row("peers", f"{what}: all budgets and a plan", times.ms("all"), "ms")
    yield Row("peers", f"{what}: one budget", times.ms("one"), "ms")
    yield Row("peers", f"{what}: no windows, nothing merged", times.ms("raw"), "ms")
    for peer, gate in (("torch", 25), ("or-tools", 10)):
        yield Row("peers", f"{what}: {peer} / raw", times.ratio(peer, "raw"), "x")
        for ours in ("all", "one"):
            yield at_least("peers", f"{what}: {peer} / {ours}", times.ratio(peer, ours), gate)


def _check_gain(ours: int, torch_gain: int, or_tools_gain: int) -> None:
    if ours != or_tools_gain:
        raise ValueError(f"a gain of {ours}, but OR-Tools has {or_tools_gain}")
    if abs(ours - torch_gain) > ours * 1e-3:  # it adds up in float32
        raise ValueError(f"a gain of {ours}, but torch has {torch_gain}")


def wave() -> Iterator[Row]:
    """Hold wavefronts over rows of 10M cells against one candidate at a time."""
    for size in (2000, 20_000, 100_000):
        for kind in (INT64, INT32):
            yield from _wave_against_one(size, kind, gate=3 if (size, kind) == (2000, INT64) else 0)
    yield from _whole_solve_in_waves()


def _wave_against_one(size: int, kind: CellType, gate: float) -> Iterator[Row]:
    raw = raw_sweep(48, 10_000_000, size, kind)
    waves, ends = raw.waves(), raw.one_by_one()
    times = race(
        {
            "waves": lambda: raw.run(waves, dense_rows.WAVE_CHUNK_SHIFT),
            "one": lambda: raw.run(ends, WHOLE_ROW),
        },
        rounds=5,
    )
    what, gain = f"48 x 10M {raw.row.dtype}, sizes about {size}", times.ratio("one", "waves")
    yield Row("wave", f"{what}: waves", raw.cells / times.ms("waves") / 1e6, "Gcell/s")
    yield Row("wave", f"{what}: one", raw.cells / times.ms("one") / 1e6, "Gcell/s")
    yield at_least("wave", what, gain, gate) if gate else Row("wave", what, gain, "x")


def _whole_solve_in_waves() -> Iterator[Row]:
    _, sizes, gains, capacity = make("uncorrelated", 100, 10_000_000)
    gains = gains * BEYOND_INT32

    def one_by_one() -> None:
        with patch.object(dense_rows, "ROW_CACHE_BYTES", 1 << 62):
            dense.solve_all(sizes, gains, capacity)

    times = race(
        {"waves": lambda: dense.solve_all(sizes, gains, capacity), "one": one_by_one}, rounds=5
    )
    yield Row("wave", "solve_all 100 x 10M int64, sizes to 400k", times.ratio("one", "waves"), "x")


def memory() -> Iterator[Row]:
    """Measure the peak of all that numpy allocates in a solve of half a billion cells."""
    _, sizes, gains, capacity = make("uncorrelated", 5000, 100_000)
    what = "5000 x 100k int32, allocated at the peak"
    for name, solve in (
        ("all budgets", lambda: dense.solve_all(sizes, gains, capacity)),
        ("one budget", lambda: dense.solve_one(sizes, gains, capacity)),
    ):
        yield at_most("memory", f"{what}: {name}", _peak_bytes(solve) / 1e6, 70, "MB")
    peak = _peak_bytes(lambda: dense.solve_one(sizes, gains, capacity, memory="hirschberg"))
    yield Row("memory", f"{what}: halving, with columns and mask", peak / 1e6, "MB")
    lent = need_for_one_sparing(reduced(sizes, gains, capacity, 1)).size_bytes
    beside = (lent - 2 * dense_rows.row_bytes(capacity, INT32)) / 1e6
    yield at_most("memory", "halving, lent beside two rows", beside, 1, "MB")


def _peak_bytes(solve: Callable[[], object]) -> int:
    arena.free_idle()
    tracemalloc.start()
    try:
        solve()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def halving() -> Iterator[Row]:
    """Hold 1 MB of decisions against all of them."""
    for n, capacity in ((200, 100_000), (1000, 100_000), (5000, 100_000), (500, 1_000_000)):
        yield from _halving(make("uncorrelated", n, capacity), "int32")
        yield from _halving(make("uncorrelated", n, capacity), "int64")


def _halving(instance: Instance, cells: str) -> Iterator[Row]:
    _, sizes, gains, capacity = instance
    gains = gains * (1 if cells == "int32" else BEYOND_INT32)
    times = race(
        {
            "all bits": lambda: dense.solve_one(sizes, gains, capacity),
            "halving": lambda: dense.solve_one(sizes, gains, capacity, memory="hirschberg"),
        }
    )
    what = f"{sizes.size} x {capacity} {cells}"
    yield Row("halving", f"{what}: all bits", times.ms("all bits"), "ms")
    yield at_most("halving", f"{what}: 1 MB", times.ratio("halving", "all bits"), 1.8)


def curve() -> Iterator[Row]:
    """Hold all budgets with a hundred plans against all budgets without."""
    _, sizes, gains, capacity = make("uncorrelated", 1000, 100_000)
    capacities = np.linspace(capacity / 100, capacity, 100).astype(int).tolist()

    def one_after_the_other() -> None:
        solved = dense.solve_all(sizes, gains, capacity)
        for each in capacities:
            solved.trace(each)

    times = race(
        {
            "none": lambda: dense.solve_all(sizes, gains, capacity),
            "together": lambda: dense.solve_all(sizes, gains, capacity).traces(capacities),
            "singly": one_after_the_other,
        },
        rounds=9,
    )
    yield Row("curve", "1000 x 100k, all budgets", times.ms("none"), "ms")
    yield at_most("curve", "with 100 plans traced together", times.ratio("together", "none"), 1.3)
    yield Row("curve", "with 100 plans traced singly", times.ratio("singly", "none"), "x")


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "limit": limit,
    "peers": peers,
    "wave": wave,
    "memory": memory,
    "halving": halving,
    "curve": curve,
}


def main() -> None:
    """Print the machine and every figure, as a table or as one JSON object."""
    asked = options(__doc__, SECTIONS).parse_args()
    described = machine.describe()
    dense.warm_up()
    rows = told(described, figures(SECTIONS, asked.only), as_json=asked.json)
    if asked.write:
        asked.write.write_text(
            as_markdown("Dense kernels: figures of one run", (), described, rows)
        )


if __name__ == "__main__":
    main()
