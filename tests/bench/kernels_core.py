"""The exact core and its hand-over to the dense DP, against peers and against the dense DP."""

from collections.abc import Iterator
from time import thread_time_ns

from tests.bench.dense_peers import or_tools, torch_dp
from tests.bench.instances import FAMILIES, Instance, make
from tests.bench.kernels_peers import Found, highs, torch_in_units
from tests.bench.paired import Work, race
from tests.bench.table import Row, at_least, at_most

from haversack_kernels import dense, dispatch, knapsack

GIB_80 = 80 << 30
SIZES = ((200, 100_000), (500, 1_000_000), (1000, 100_000), (5000, 100_000))
BEYOND_INT32 = 1 << 32
HIGHS_SECONDS = 2.0
"""Limit on HiGHS where it may not end: ratios to it are then at least what they say."""

REPEATED = 20
"""Solves that one figure is the mean of: a single one is too short to be told."""
TRANSFORMERS = ("transformer", "transformer, jittered", "transformer, uneven")


def anchors() -> Iterator[Row]:
    """Hold the core on bytes of 80 GiB against torch's DP in 100k units and HiGHS with gap 0."""
    for n in (100, 1000, 5000):
        for family in TRANSFORMERS:
            yield from _anchor(make(family, n, GIB_80), gated=n == 1000)


def _anchor(instance: Instance, gated: bool) -> Iterator[Row]:
    columns, n = instance[1:], instance.sizes.size
    selection = knapsack.solve(*columns)
    _check(selection.proven, "not proven")
    works: dict[str, Work] = {
        "core": lambda: [knapsack.solve(*columns) for _ in range(REPEATED)],
        "once": lambda: knapsack.solve(*columns),
        "torch": torch_in_units(instance, "dp_knapsack"),
    }
    theirs: list[Found] = []
    if gated:
        solve = highs(instance)
        works["highs"] = lambda: theirs.append(solve())
    times = race(works, rounds=5)
    what = f"{n} {instance.family}, bytes, 80 GiB"
    yield Row("anchor", f"{what}: core", times.ms("core") / REPEATED, "ms")
    yield Row("anchor", f"{what}: core, once, the caches full of others'", times.ms("once"), "ms")
    for peer, gate in (("torch", 500), ("highs", 100)):
        if peer in works:
            ratio, text = REPEATED * times.ratio(peer, "core"), f"{what}: {peer} / core"
            yield (
                at_least("anchor", text, ratio, gate) if gated else Row("anchor", text, ratio, "x")
            )
    if theirs:
        yield _verdict(instance, selection.gain, theirs[0])


def _verdict(instance: Instance, gain: int, theirs: Found) -> Row:
    """Return by how much HiGHS is over the budget; within it, it has to find the same gain."""
    over = theirs.size - instance.capacity
    _check(over > 0 or not theirs.proven or theirs.gain == gain, "HiGHS disagrees")
    what = f"{instance.sizes.size} {instance.family}, bytes, 80 GiB: HiGHS is over budget by"
    return Row("anchor", what, max(over, 0), "bytes")


def hard() -> Iterator[Row]:
    """Hold every family and size against the dense DP of the same instance, one budget."""
    for family in FAMILIES:
        for n, capacity in SIZES:
            yield from _hard(make(family, n, capacity))
    yield from _strongly_against_int64()


def _hard(instance: Instance) -> Iterator[Row]:
    columns = instance[1:]
    selection, why = dispatch.solve_knapsack(*columns)
    _check(selection.proven, "not proven")
    _check(selection.gain == dense.solve_one(*columns).gain, "the dense DP disagrees")
    times = race(
        {
            "core": lambda: dispatch.solve_knapsack(*columns),
            "dense": lambda: dense.solve_one(*columns),
        },
        rounds=11,
    )
    what = f"{instance.sizes.size} x {instance.capacity} {instance.family}"
    ratio = times.ratio("core", "dense")
    yield Row("hard", f"{what}: {why.algorithm}", times.ms("core"), "ms")
    yield at_most("hard", f"{what}: over the dense DP", ratio, 2)


def _strongly_against_int64() -> Iterator[Row]:
    family, sizes, gains, capacity = make("strongly correlated", 500, 1_000_000)
    wide = gains * BEYOND_INT32
    times = race(
        {
            "core": lambda: knapsack.solve(sizes, gains, capacity),
            "dense": lambda: dense.solve_one(sizes, wide, capacity),
        }
    )
    what = f"500 x 1000000 {family}: core over dense int64"
    yield at_most("hard", what, times.ratio("core", "dense"), 0.06)


def peers() -> Iterator[Row]:
    """Hold one budget against torch's DPs and OR-Tools, on instances whose units they share."""
    for n in (1000, 5000):
        for family in ("uncorrelated", "strongly correlated", "subset-sum", "transformer, uneven"):
            yield from _against_peers(make(family, n, 100_000))


def _against_peers(instance: Instance) -> Iterator[Row]:
    hirschberg = torch_in_units(instance, "dp_knapsack_sliding_hirschberg")
    times = race(
        {
            "core": lambda: dispatch.solve_knapsack(*instance[1:]),
            "torch dp": torch_dp(instance),
            "torch hirschberg": hirschberg,
            "or-tools": or_tools(instance),
            "highs": highs(instance, HIGHS_SECONDS),
        },
        rounds=5,
    )
    what = f"{instance.sizes.size} x {instance.capacity} {instance.family}"
    yield Row("core", f"{what}: core", times.ms("core"), "ms")
    for peer in ("torch dp", "torch hirschberg", "or-tools", "highs"):
        yield Row("core", f"{what}: {peer} / core", times.ratio(peer, "core"), "x")


def in_bytes() -> Iterator[Row]:
    """Show every family in bytes of 80 GiB, where no dense DP is exact, beside HiGHS, once each."""
    for n in (100, 1000):
        for family in FAMILIES:
            if family not in TRANSFORMERS:
                yield from _in_bytes(make(family, n, GIB_80))


def _in_bytes(instance: Instance) -> Iterator[Row]:
    columns = instance[1:]
    ours, what = knapsack.solve(*columns), f"{instance.sizes.size} {instance.family}, bytes, 80 GiB"
    core = race({"core": lambda: knapsack.solve(*columns)}, rounds=5).ms("core")
    solve, start = highs(instance, HIGHS_SECONDS), thread_time_ns()
    gain, size, proven = solve()
    taken = (thread_time_ns() - start) / 1e6
    yield Row("bytes", f"{what}: core, {'proven' if ours.proven else 'a bound'}", core, "ms")
    yield Row("bytes", f"{what}: gap", 1e9 * (ours.upper_bound - ours.gain) / ours.gain, "ppb")
    over = f", {size - instance.capacity} bytes over budget" if size > instance.capacity else ""
    verdict = "proven" if proven else f"stopped after {HIGHS_SECONDS:g} s"
    yield Row("bytes", f"{what}: HiGHS, {verdict}{over}", taken, "ms")
    yield Row("bytes", f"{what}: HiGHS gains more by", 1e9 * (gain - ours.gain) / ours.gain, "ppb")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
