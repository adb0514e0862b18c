"""What dispatch costs, over the better of the core and the dense DP, had one known which it is.

The core alone has all its states; where they prove nothing the dense DP is the better one.
"""

from collections.abc import Iterator
from functools import partial

from tests.bench.instances import FAMILIES, Instance, make
from tests.bench.paired import race
from tests.bench.table import Row, at_most

from haversack_kernels import dense, dispatch, knapsack
from haversack_kernels.dispatch_cost import Work, cpu_one_ns, dense_cells

SIZES = ((50, 10_000), (200, 100_000), (1000, 100_000), (500, 1_000_000))


def choices() -> Iterator[Row]:
    """Hold dispatch to twice the better choice, on every family and size."""
    for family in FAMILIES:
        for n, capacity in SIZES:
            yield from _choice(make(family, n, capacity))


def _choice(instance: Instance) -> Iterator[Row]:
    columns = instance[1:]
    selection, why = dispatch.solve_knapsack(*columns)
    alone = knapsack.solve(*columns)
    works = {
        "before": lambda: knapsack.solve(*columns),  # after a dense DP the caches are that one's
        "dispatch": lambda: dispatch.solve_knapsack(*columns),
        "core": lambda: knapsack.solve(*columns),
        "dense": lambda: dense.solve_one(*columns),
    }
    times = race(works, rounds=11)
    better = "core" if alone.proven and times.ms("core") <= times.ms("dense") else "dense"
    if not selection.proven:
        raise ValueError(f"{instance.family}: not proven")
    what = f"{instance.sizes.size} x {instance.capacity} {instance.family}: {why.algorithm}"
    ratio = times.ratio("dispatch", better)
    yield at_most("dispatch", f"{what}, over {better}", ratio, 2)


def predictions() -> Iterator[Row]:
    """Show what the cost model says of the dense DP on this machine's CPU, over what it takes."""
    for scale, name in ((1, "int32"), (1 << 32, "int64")):
        for n, capacity in SIZES:
            _, sizes, gains, _ = make("uncorrelated", n, capacity)
            columns = sizes, gains * scale, capacity
            problem = knapsack.reduced(*columns)
            if isinstance(problem, knapsack.Selection):
                continue
            size_sum = float(problem.size.astype(float) @ problem.copies)
            work = Work(name, problem.capacity, dense_cells(problem), n, size_sum)
            taken = race({"dense": partial(dense.solve_one, *columns)}, rounds=5).ms("dense")
            what = f"{n} x {capacity} {name}: dense DP as predicted, over what it takes"
            yield Row("dispatch", what, cpu_one_ns(work) / 1e6 / taken, "x")
