"""The knapsack of PyTorch's partitioner, solved exactly and never over budget.

``torch.compile`` with ``torch._functorch.config.activation_memory_budget`` below 1 asks a solver
which activations to save. Here is one for torch 2.9 to 2.13:

    with haversack.torch.partitioner.install():
        loss = torch.compile(model)(batch).sum()

Knows only what PyTorch asks: sizes as parts of what it would save otherwise, and run times. That
budget limits saved bytes, not the peak: see ``docs/partitioner.md``.
"""

import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch._functorch import config, partitioners
from torch._inductor import custom_graph_pass
from torch.fx import Graph, GraphModule, Node

from haversack.errors import (
    InvalidRequestError,
    MissingExtraError,
    NotSupportedError,
    Violation,
    check,
)
from haversack.torch.random_operations import draws_random

VERSIONS = ("2.9", "2.10", "2.11", "2.12", "2.13")
"""Releases of torch whose source was read; what others ask of a solver is not known."""

Chosen: TypeAlias = tuple[float, list[int], list[int]]
JointPass: TypeAlias = Callable[[GraphModule, Any], GraphModule]

_LOG = logging.getLogger(__name__)
_CAPACITY_BITS = 62  # the kernel's limit; what is lost by rounding is 2^-62 of the budget
_GAIN_BITS = 52  # for run times that are no whole numbers; float64 is no finer
_MOST_GAIN = 1 << 62

# Up to 2.10 any callable would do.
_Base: Any = getattr(custom_graph_pass, "CustomKnapsackSolver", object)


def knapsack(memory: Sequence[float], runtimes: Sequence[float], max_memory: float) -> Chosen:
    """Choose what to save: the largest sum of run times whose memory is within ``max_memory``.

    Takes and gives what PyTorch's own solvers do: the run time spared, the indices to save, and
    the indices to recompute. The sum of the memories is exact, without the rounding of floats: 5 x
    0.1 does not fit into 0.5. Raises ``InvalidRequestError`` for a number that is negative, NaN or
    infinite.
    """
    _check(memory, runtimes, max_memory)
    sizes, capacity = _sizes(np.asarray(memory, np.float64), float(max_memory))
    saved = _solve(sizes, _gains(np.asarray(runtimes, np.float64)), capacity)
    chosen, others = np.flatnonzero(saved).tolist(), np.flatnonzero(~saved).tolist()
    return math.fsum(runtimes[i] for i in chosen), chosen, others


class KnapsackSolver(_Base):  # type: ignore[misc] # what it is depends on the torch
    """What ``torch._functorch.config.activation_memory_budget_solver`` takes.

    Raises ``NotSupportedError`` on another torch, and on a graph that draws random numbers.
    """

    def __init__(self) -> None:
        _check_version()
        self._digest = _digest()  # an attribute: torch 2.10 pickles the solver into its cache's key

    def __call__(
        self,
        memory: list[float],
        joint_graph: Graph,
        max_memory: float,
        node_info: Any,
        all_recomputable_banned_nodes: list[Node],
    ) -> tuple[list[int], list[int]]:
        """Choose among candidates; gives the indices to save and to recompute."""
        refuse_random(joint_graph)
        with _dispatching():
            runtimes = [
                partitioners.estimate_runtime(each) for each in all_recomputable_banned_nodes
            ]
        _, saved, recomputed = knapsack(memory, runtimes, max_memory)
        return saved, recomputed

    def uuid(self) -> str:
        """Name this code: graphs that another version planned are compiled anew."""
        return self._digest


def install() -> contextlib.ExitStack:
    """Make it the solver of every compilation from here on, or to the end of a ``with``.

    Compilation happens in the first call, so that has to be inside. The budget stays the caller's:
    ``torch._functorch.config.activation_memory_budget``. Below 1, graphs that draw random numbers
    are refused: PyTorch would recompute dropout with another mask (pytorch #190758).
    """
    solver = KnapsackSolver()
    undo = contextlib.ExitStack()
    _set(undo, "activation_memory_budget_solver", solver)
    if hasattr(config, "joint_custom_pass"):  # from torch 2.10 on
        _set(undo, "joint_custom_pass", _Guard(config.joint_custom_pass))
    return undo


class _Guard:
    """Looks at every graph before it is cut in two, also those for which no solver is asked."""

    def __init__(self, earlier: JointPass | None) -> None:
        self._earlier = earlier

    def __call__(self, module: GraphModule, inputs: Any) -> GraphModule:
        if self._earlier is not None:
            module = self._earlier(module, inputs)
        if config.activation_memory_budget < 1:
            refuse_random(module.graph)
        return module


def refuse_random(graph: Graph) -> None:
    """Raise ``NotSupportedError`` if a graph draws random numbers.

    Under a budget PyTorch may draw them again in backward. No solver can prevent it: PyTorch asks
    none at budget 0 and wherever a cheaper cut fits, and inductor's seeds are no candidates.
    """
    for node in graph.nodes:
        if draws_random(node.target, node.args, node.kwargs):
            raise NotSupportedError(
                f"{node.name} ({node.target}) draws random numbers, as dropout does; below an "
                "activation_memory_budget of 1 PyTorch may draw others in backward, for wrong "
                "gradients (pytorch #190758); do without it or set the budget to 1"
            )


@contextlib.contextmanager
def _dispatching() -> Iterator[None]:
    """Let modes see operations again: PyTorch calls a solver under ``no_dispatch``.

    There its own counter of FLOPs sees none, so that every run time would be 1.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


def _check(memory: Sequence[float], runtimes: Sequence[float], max_memory: float) -> None:
    if len(memory) != len(runtimes):
        raise InvalidRequestError(
            f"{len(runtimes)} run times for {len(memory)} candidates; give one for each",
            field="runtimes",
        )
    given = [("max_memory", max_memory)]
    given += [(f"memory[{i}]", each) for i, each in enumerate(memory)]
    given += [(f"runtimes[{i}]", each) for i, each in enumerate(runtimes)]
    check(
        [
            Violation(name, f"{value} will not do; give a finite number >= 0")
            for name, value in given
            if not 0 <= value < math.inf
        ]
    )


def _sizes(memory: NDArray[np.float64], max_memory: float) -> tuple[NDArray[np.int64], int]:
    """Scale by a power of two, which is exact, and round sizes up; the capacity needs no rounding.

    What is larger than the budget becomes one unit more than the capacity.
    """
    shift = _CAPACITY_BITS - math.frexp(max_memory)[1]
    capacity = int(math.ldexp(max_memory, shift))
    fits = memory <= max_memory
    scaled = np.ceil(np.ldexp(np.where(fits, memory, 0.0), shift)).astype(np.int64)
    return np.where(fits, scaled, capacity + 1), capacity


def _gains(runtimes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Take whole numbers as they are; others in units of 2^-52 of their sum, to the nearest."""
    total = math.fsum(runtimes)
    if total < _MOST_GAIN and np.array_equal(runtimes, np.floor(runtimes)):
        return runtimes.astype(np.int64)
    shift = _GAIN_BITS - math.frexp(total)[1]
    return np.rint(np.ldexp(runtimes, shift)).astype(np.int64)


def _solve(sizes: NDArray[np.int64], gains: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    selection = _kernel().solve(sizes, gains, capacity)
    if not selection.proven:
        bound = selection.upper_bound / max(selection.gain, 1)
        _LOG.info("the optimum is at most %.4g times what was found", bound)
    mask: NDArray[np.bool_] = selection.mask
    return mask


def _kernel() -> ModuleType:
    try:
        from haversack_kernels import knapsack
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("haversack"):
            raise  # a fault of ours, not a light install
        raise MissingExtraError(
            f"the solver needs {missing.name}: pip install 'haversack[server,torch]'"
        ) from missing
    return knapsack


def _check_version() -> None:
    release = ".".join(torch.__version__.split(".")[:2])
    if release not in VERSIONS:
        raise NotSupportedError(
            f"torch {torch.__version__} is not known here; {VERSIONS[0]} to {VERSIONS[-1]} would do"
        )


def _digest() -> str:
    """Hash the code that decides: this file and the kernels."""
    kernels = Path(_kernel().__file__ or "").parent.rglob("*.py")
    content = hashlib.sha256()
    for file in [Path(__file__), *sorted(kernels)]:
        content.update(file.read_bytes())
    return content.hexdigest()


def _set(undo: contextlib.ExitStack, name: str, value: object) -> None:
    undo.callback(setattr, config, name, getattr(config, name))
    setattr(config, name, value)
