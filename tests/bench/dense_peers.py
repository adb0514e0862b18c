"""The solvers that the dense DP is held against, each with an instance ready to be solved."""

from collections.abc import Callable

from tests.bench.instances import Instance

TORCH_UNITS = 10_000
"""torch multiplies memories by this and rounds them, so its units are exact in ours."""


def torch_dp(instance: Instance) -> Callable[[], int]:
    """Return a call of ``torch._functorch``'s ``dp_knapsack`` on one thread; it gives the gain."""
    import torch
    from torch._functorch._activation_checkpointing.knapsack import dp_knapsack

    torch.set_num_threads(1)
    memory = [size / TORCH_UNITS for size in instance.sizes.tolist()]
    runtime = [float(gain) for gain in instance.gains.tolist()]

    def solve() -> int:
        return int(dp_knapsack(memory, runtime, instance.capacity / TORCH_UNITS)[0])

    return solve


def or_tools(instance: Instance) -> Callable[[], int]:
    """Return a call of OR-Tools' divide and conquer; it gives the gain."""
    from ortools.algorithms.python import knapsack_solver

    kind = knapsack_solver.SolverType.KNAPSACK_DIVIDE_AND_CONQUER_SOLVER
    sizes, gains = instance.sizes.tolist(), instance.gains.tolist()

    def solve() -> int:
        solver = knapsack_solver.KnapsackSolver(kind, "dense")
        solver.init(gains, [sizes], [instance.capacity])
        return int(solver.solve())

    return solve
