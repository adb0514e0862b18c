"""What a run keeps in the memory of its hosts: offloaded states, and those that may be paged out.

Knows nothing of the processes themselves: interpreter, data loaders, page cache and the copy that
loading a checkpoint makes come on top.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from typing import NamedTuple

from haversack.estimate import Estimate, HostMemory, Term, TermCategory
from haversack.run import TrainingRun
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.offload import HostStates, ranks_per_node
from haversack_server.memory.ranks import RankLine
from haversack_server.memory.recipe import Recipe

_OFFLOAD = "DeepSpeed, PyTorch FSDP or Megatron-LM, as haversack_server.memory.offload names them"
_MOVED = "NVIDIA/Megatron-LM, core/pipeline_parallel/fine_grained_activation_offload.py"
_ACTIVATIONS = ("tokens per rank", "layers", "microbatches in flight")
_PAGED = "bitsandbytes, get_state_buffer: managed memory, outside PyTorch's allocator"


def host_memory(run: TrainingRun, lines: Sequence[RankLine]) -> HostMemory | None:
    """Describe the class that keeps the most; None where nobody keeps anything."""
    fullest = max(lines, key=lambda line: line.host_bytes)
    if not fullest.host_bytes:
        return None
    chain = fullest.chain
    return described_host(run, chain.states.host, chain.recipe, chain.degrees)


def described_host(
    run: TrainingRun, host: HostStates, recipe: Recipe, degrees: Degrees
) -> HostMemory:
    """Describe what one rank keeps there, and the ranks of a node together."""
    ranks = ranks_per_node(run.parallelism, degrees)
    return HostMemory(
        rank_bytes=host.total_bytes,
        pinned_bytes=host.pinned_bytes,
        ranks_per_node=ranks,
        node_bytes=host.total_bytes * ranks,
        terms=_terms(host, recipe),
    )


class _Row(NamedTuple):
    """One kind of bytes on the host, in words."""

    name: str
    category: TermCategory
    size_bytes: int
    formula: str
    source: str


def _rows(host: HostStates, recipe: Recipe) -> Iterator[_Row]:
    optimizer, gradient = TermCategory.OPTIMIZER, TermCategory.GRADIENT
    rows = (
        ("parameters", TermCategory.PARAMETER, host.parameter_bytes, "the rank's own", _OFFLOAD),
        ("gradients", gradient, host.gradient_bytes, "as the step on the host reads", _OFFLOAD),
        ("master weights", optimizer, host.master_bytes, "fp32, as the step updates", _OFFLOAD),
        (
            "optimizer moments",
            optimizer,
            host.moment_bytes,
            f"of {recipe.optimizer.name}; never pinned",
            _OFFLOAD,
        ),
        (
            "staging buffers",
            TermCategory.TRANSIENT,
            host.staging_bytes,
            "what arrives from the device, or is on its way back",
            _OFFLOAD,
        ),
        (
            "activations",
            TermCategory.ACTIVATION,
            host.activation_bytes,
            "of the parts named in offload_modules, of every microbatch in flight; pinned",
            _MOVED,
        ),
        (
            "paged optimizer moments",
            optimizer,
            host.paged_bytes,
            "on the device as long as there is room, which its reserved bytes do not show",
            _PAGED,
        ),
    )
    return starmap(_Row, rows)


def _terms(host: HostStates, recipe: Recipe) -> tuple[Term, ...]:
    return tuple(
        Term(
            name=row.name,
            category=row.category,
            bytes=row.size_bytes,
            largest_bytes=row.size_bytes,
            formula=row.formula,
            source=row.source,
            scales_with=_ACTIVATIONS
            if row.category is TermCategory.ACTIVATION
            else ("parameters",),
        )
        for row in _rows(host, recipe)
        if row.size_bytes
    )


def with_host(
    answer: Estimate, run: TrainingRun, host: HostStates, recipe: Recipe, degrees: Degrees
) -> Estimate:
    """Add what every rank keeps on its host to an answer with one class of ranks."""
    if not host.total_bytes:
        return answer
    ranks = tuple(replace(each, host_bytes=host.total_bytes) for each in answer.ranks)
    return replace(answer, ranks=ranks, host=described_host(run, host, recipe, degrees))
