"""``torch.compile`` with our solver in PyTorch's partitioner: real graphs, real gradients, CPU."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the solver is for PyTorch's partitioner")

import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch import config, partitioners
from torch.nn import functional

from haversack.torch import partitioner
from haversack.torch.partitioner import KnapsackSolver

# Inductor's own imports use what torch.jit calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

WIDTH, TOKENS, HEADS = 32, 24, 4


class Block(nn.Module):
    """Attention and an MLP, each with a residual."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(WIDTH)
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.mixed(self.norm(x)).view(-1, TOKENS, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        scores = query @ key.transpose(-1, -2) / 3
        x = x + (scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape)
        hidden = functional.gelu(self.wide(x))
        return x + functional.dropout(self.narrow(hidden), self.dropout, self.dropout > 0)


@dataclass
class Call:
    """What PyTorch asked of the solver, what it knew itself, and what it got."""

    memory: list[float]
    runtimes: list[float]
    budget: float
    saved: list[int]
    recomputed: list[int]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    seen: list[Call] = []
    ask = partitioners._optimize_runtime_with_given_memory

    def record(graph: Any, memory: Any, runtimes: Any, budget: Any, *rest: Any) -> Any:
        answer = ask(graph, memory, runtimes, budget, *rest)
        seen.append(Call(memory, runtimes, budget, *answer[1:]))
        return answer

    monkeypatch.setattr(partitioners, "_optimize_runtime_with_given_memory", record)
    return seen


@pytest.fixture(autouse=True)
def _compiled_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradients(model: nn.Module, run: Any) -> list[Tensor]:
    """Run one step on the same input; gives the output and all gradients."""
    torch.manual_seed(1)
    x = torch.randn(2, TOKENS, WIDTH, requires_grad=True)
    model.zero_grad()
    output = run(x)
    output.square().mean().backward()
    found = [x.grad, *(each.grad for each in model.parameters())]
    assert all(each is not None for each in found)
    return [output.detach(), *(each.clone() for each in found if each is not None)]


def model_of(dropout: float = 0.0, blocks: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(dropout) for _ in range(blocks)))


@pytest.mark.parametrize("budget", [0.5, 0.2])
def test_a_compiled_model_computes_the_same_within_the_budget(
    budget: float, calls: list[Call]
) -> None:
    model = model_of()
    plain = gradients(model, model)
    with partitioner.install(), config.patch(activation_memory_budget=budget):
        planned = gradients(model, torch.compile(model, backend="aot_eager"))

    # The same operations on the same numbers, some of them twice: the same bits.
    assert all(torch.equal(left, right) for left, right in zip(plain, planned, strict=True))
    assert calls
    for call in calls:
        assert call.budget == budget
        assert call.saved
        assert call.recomputed
        assert sum(Fraction(call.memory[i]) for i in call.saved) <= Fraction(budget)


def test_decomposed_operations_agree_up_to_their_rounding(calls: list[Call]) -> None:
    model = model_of()
    plain = gradients(model, model)
    with partitioner.install(), config.patch(activation_memory_budget=0.5):
        planned = gradients(model, torch.compile(model, backend="aot_eager_decomp_partition"))
    assert calls
    # Inductor's decompositions sum in another order than eager's kernels, in float32.
    for left, right in zip(plain, planned, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor's CPU code needs a C++ compiler")
def test_inductor_takes_the_solver_and_its_name_for_the_cache(
    calls: list[Call], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = model_of(blocks=1)
    plain = gradients(model, model)
    with partitioner.install(), config.patch(activation_memory_budget=0.5):
        planned = gradients(model, torch.compile(model))
        for left, right in zip(plain, planned, strict=True):
            torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-6)
        torch._dynamo.reset()
        gradients(model, torch.compile(model))
    assert len(calls) == 1  # the second compilation came from PyTorch's cache, which took uuid()


def test_run_times_are_what_pytorch_itself_counts(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    taken: list[float] = []
    estimate = partitioners.estimate_runtime

    def record(node: Any) -> float:
        taken.append(estimate(node))
        return taken[-1]

    monkeypatch.setattr(partitioners, "estimate_runtime", record)
    with partitioner.install(), config.patch(activation_memory_budget=0.5):
        gradients(model, torch.compile(model, backend="aot_eager"))
    (call,) = calls
    # First PyTorch's own, outside of the solver, then ours, inside it.
    assert taken == 2 * call.runtimes
    assert max(taken) > 1  # under no_dispatch every one would be 1


def test_ours_spares_as_much_as_pytorchs_solvers_in_the_same_graph(calls: list[Call]) -> None:
    for solver in ("dp", "ilp", KnapsackSolver()):
        torch._dynamo.reset()
        model = model_of()
        with config.patch(activation_memory_budget=0.3, activation_memory_budget_solver=solver):
            gradients(model, torch.compile(model, backend="aot_eager"))
    spared = [sum(call.runtimes[i] for i in call.saved) for call in calls]
    over = [sum(call.memory[i] for i in call.saved) > call.budget for call in calls]
    assert len(calls) == 3
    assert spared[-1] >= max(each for each, late in zip(spared, over, strict=True) if not late)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_dropout_under_a_budget_is_refused(backend: str, budget: float) -> None:
    model = model_of(dropout=0.5)
    refused = pytest.raises(BackendCompilerFailed, match=r"draws random numbers.*#190758")
    with partitioner.install(), config.patch(activation_memory_budget=budget), refused:
        gradients(model, torch.compile(model, backend=backend))


def test_dropout_without_a_budget_is_nobodys_business(calls: list[Call]) -> None:
    model = model_of(dropout=0.5)
    with partitioner.install():
        gradients(model, torch.compile(model, backend="aot_eager"))
    assert calls == []


def test_the_dropout_of_pytorch_under_a_budget_is_wrong() -> None:
    """Fails once PyTorch is right (pytorch #190758): then dropout need not be refused."""
    scale = nn.Parameter(torch.tensor(1.5))
    with config.patch(activation_memory_budget=0.0):
        run = torch.compile(
            lambda x: functional.dropout(x * scale, 0.5, True).sum(), backend="aot_eager"
        )
        loss = run(torch.randn(64, 64))
        torch.autograd.backward(loss)
    assert scale.grad is not None
    # The loss is linear in the scale, so the gradient of the same mask gives it back.
    assert not torch.isclose(loss, scale * scale.grad, rtol=1e-3)


def test_a_pass_that_stood_there_still_runs() -> None:
    seen = []

    def earlier(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return module

    with config.patch(joint_custom_pass=earlier), partitioner.install():
        model = model_of()
        gradients(model, torch.compile(model, backend="aot_eager"))
    assert len(seen) == 1
