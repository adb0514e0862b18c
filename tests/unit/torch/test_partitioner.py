"""What PyTorch's solvers save beyond their budget, and ours does not. No graph is compiled here."""

import itertools
import math
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest

pytest.importorskip("torch", reason="the solver is for PyTorch's partitioner")

import torch
from torch._functorch import config
from torch._functorch._activation_checkpointing.knapsack import (
    dp_knapsack,
    dp_knapsack_sliding_hirschberg,
    greedy_knapsack,
    ilp_knapsack,
)
from torch.fx import Graph

from haversack.errors import InvalidRequestError, MissingExtraError, NotSupportedError
from haversack.torch import partitioner
from haversack.torch.partitioner import KnapsackSolver, knapsack

Solver: TypeAlias = Callable[[list[float], list[float], float], tuple[float, list[int], list[int]]]


def exact(numbers: Sequence[float], chosen: Sequence[int]) -> Fraction:
    return sum((Fraction(numbers[i]) for i in chosen), Fraction(0))


def over(solver: Solver, memory: list[float], runtimes: list[float], budget: float) -> float:
    """How many times the budget a solver saves; every candidate has to be in one list."""
    _, saved, recomputed = solver(memory, runtimes, budget)
    assert sorted(saved + recomputed) == list(range(len(memory)))
    return float(exact(memory, saved) / Fraction(budget))


def normalised(seed: int, n: int) -> tuple[list[float], list[float]]:
    """Sizes as the partitioner passes them, parts of a sum; FLOPs beside them."""
    draw = np.random.default_rng(seed)
    size = draw.random(n)
    return (1.5 * size / size.sum()).tolist(), draw.integers(1, 1000, n).astype(float).tolist()


def best_by_enumeration(memory: list[float], runtimes: list[float], budget: float) -> Fraction:
    n = len(memory)
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(n), k) for k in range(n + 1)
    )
    fits = (each for each in subsets if exact(memory, each) <= Fraction(budget))
    return max(exact(runtimes, each) for each in fits)


def test_what_rounds_to_nothing_is_free_in_pytorch_and_not_here() -> None:
    memory, runtimes = [0.00004] * 100, [1.0] * 100
    assert over(dp_knapsack, memory, runtimes, 0.001) == pytest.approx(4)
    assert over(dp_knapsack_sliding_hirschberg, memory, runtimes, 0.001) == pytest.approx(4)
    assert over(knapsack, memory, runtimes, 0.001) <= 1
    # 0.00004 as a float is a little more than that, so 25 of them do not fit.
    assert len(knapsack(memory, runtimes, 0.001)[1]) == int(Fraction(0.001) / Fraction(0.00004))


def test_pytorchs_halving_gives_a_unit_too_much_and_ours_does_not() -> None:
    memory, runtimes = [0.0001] * 3, [1.0] * 3  # pytorch #197871
    assert over(dp_knapsack_sliding_hirschberg, memory, runtimes, 0.0001) == 2
    assert over(knapsack, memory, runtimes, 0.0001) == 1


@pytest.mark.parametrize("n", [200, 1000])
def test_pytorchs_solvers_exceed_real_valued_budgets_and_ours_does_not(n: int) -> None:
    cases = [normalised(seed, n) for seed in range(3 if n == 1000 else 10)]
    for theirs in (dp_knapsack, dp_knapsack_sliding_hirschberg):
        assert max(over(theirs, *each, 0.5) for each in cases) > 1.0005
    assert max(over(knapsack, *each, 0.5) for each in cases) <= 1


@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("budget", [0.1, 0.5, 0.9])
def test_no_feasible_solver_spares_more(n: int, budget: float) -> None:
    memory, runtimes = normalised(n, n)
    spared, saved, _ = knapsack(memory, runtimes, budget)
    assert spared == exact(runtimes, saved)
    for theirs in (greedy_knapsack, ilp_knapsack):
        _, theirs_saved, _ = theirs(memory, runtimes, budget)
        assert exact(memory, theirs_saved) <= Fraction(budget)
        assert exact(runtimes, theirs_saved) <= spared


def test_the_choice_is_the_best_of_all_subsets() -> None:
    draw = random.Random(0)
    for _ in range(200):
        n = draw.randint(0, 7)
        memory = [draw.choice([0.0, 0.1, 0.25, draw.random(), 1e-12]) for _ in range(n)]
        runtimes = [draw.choice([0.0, 1.0, draw.random(), 1e12]) for _ in range(n)]
        budget = draw.choice([0.0, 0.25, 0.3, draw.random()])
        _, saved, recomputed = knapsack(memory, runtimes, budget)
        assert sorted(saved + recomputed) == list(range(n))
        assert exact(memory, saved) <= Fraction(budget)
        best = best_by_enumeration(memory, runtimes, budget)
        # Run times are held in units of 2^-52 of their sum.
        assert exact(runtimes, saved) >= best - n * sum(map(Fraction, runtimes)) / 2**52


@pytest.mark.slow
def test_a_hundred_thousand_real_valued_budgets_are_kept() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100_000):
        n = int(draw.integers(1, 30))
        memory = (draw.random(n) * 10.0 ** draw.integers(-9, 3, n)).tolist()
        budget = float(draw.random() * 10.0 ** draw.integers(-9, 3))
        _, saved, _ = knapsack(memory, draw.random(n).tolist(), budget)
        assert exact(memory, saved) <= Fraction(budget)


@pytest.mark.parametrize(
    ("memory", "budget", "saved"),
    [
        ([0.5, 0.5], 1.0, 2),
        ([math.nextafter(0.5, 1), 0.5], 1.0, 1),
        ([0.1] * 5, 0.5, 4),  # as floats five tenths are more than a half
        ([5e-324, 5e-324], 5e-324, 1),
        ([1e308, 1e308], 1.7e308, 1),
        ([0.0, 1e-300], 0.0, 1),
        ([2.0**-62, 1.0], 1.0, 1),
    ],
)
def test_the_last_bit_of_a_budget_counts(memory: list[float], budget: float, saved: int) -> None:
    assert len(knapsack(memory, [1.0] * len(memory), budget)[1]) == saved


def test_nothing_to_choose_from_is_no_fault() -> None:
    assert knapsack([], [], 0.5) == (0.0, [], [])


@pytest.mark.parametrize(
    ("memory", "runtimes", "budget", "field"),
    [
        ([0.1, math.nan], [1.0, 1.0], 0.5, "memory[1]"),
        ([-0.1], [1.0], 0.5, "memory[0]"),
        ([0.1], [math.inf], 0.5, "runtimes[0]"),
        ([0.1], [1.0], math.nan, "max_memory"),
        ([0.1], [], 0.5, "runtimes"),
    ],
)
def test_a_number_that_will_not_do_is_named(
    memory: list[float], runtimes: list[float], budget: float, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        knapsack(memory, runtimes, budget)
    assert wrong.value.field == field


def graph_of(target: Any, *arguments: Any, **keywords: Any) -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(target, (x, *arguments), keywords))
    return graph


ATEN = torch.ops.aten


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        (ATEN.native_dropout.default, (0.5, True)),
        (ATEN.rand_like.default, ()),
        (ATEN.bernoulli.p, (0.5,)),
        (ATEN._scaled_dot_product_flash_attention.default, (None, None, 0.1)),
    ],
)
def test_a_graph_that_draws_random_numbers_is_refused(target: Any, arguments: Any) -> None:
    with pytest.raises(NotSupportedError, match=r"draws random numbers.*#190758"):
        partitioner.refuse_random(graph_of(target, *arguments))


@pytest.mark.parametrize(
    ("target", "arguments", "keywords"),
    [
        (ATEN.sin.default, (), {}),
        (ATEN._scaled_dot_product_flash_attention.default, (None, None), {}),
        (ATEN._scaled_dot_product_flash_attention.default, (None, None, 0.0), {}),
        (ATEN._scaled_dot_product_flash_attention.default, (None, None), {"dropout_p": 0.0}),
    ],
)
def test_attention_without_dropout_draws_none(target: Any, arguments: Any, keywords: Any) -> None:
    partitioner.refuse_random(graph_of(target, *arguments, **keywords))


@pytest.mark.parametrize("version", ["2.8.0", "2.14.0+cpu", "3.0.0a0"])
def test_another_torch_is_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(
        NotSupportedError, match=rf"torch {version.replace('+', '.')} is not known here"
    ):
        KnapsackSolver()
    before = config.activation_memory_budget_solver
    with pytest.raises(NotSupportedError):
        partitioner.install()
    assert config.activation_memory_budget_solver == before


def test_an_installation_without_numba_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in sys.modules if each.startswith("haversack_kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"numba: pip install 'haversack\[server,torch\]'"):
        partitioner.install()


def test_an_installation_is_undone_at_its_end() -> None:
    before = config.activation_memory_budget_solver, config.joint_custom_pass
    with partitioner.install():
        assert isinstance(config.activation_memory_budget_solver, KnapsackSolver)
    assert (config.activation_memory_budget_solver, config.joint_custom_pass) == before

    installed = partitioner.install()
    assert isinstance(config.activation_memory_budget_solver, KnapsackSolver)
    installed.close()
    assert (config.activation_memory_budget_solver, config.joint_custom_pass) == before


def test_the_name_of_the_code_is_the_same_in_every_process() -> None:
    solver = KnapsackSolver()
    assert solver.uuid() == KnapsackSolver().uuid() == pickle.loads(pickle.dumps(solver)).uuid()
    assert len(solver.uuid()) == 64
