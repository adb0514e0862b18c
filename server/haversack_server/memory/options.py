"""The option table of a model: one row per way to run each block, read off the blocks' tapes.

Blocks of one kind are equal here, so each tape is simulated once. Knows nothing of model states,
phases or budgets.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from haversack_server.memory.architecture import Architecture, UnitKind
from haversack_server.memory.blocks import (
    Shape,
    check_shape,
    embedding_tape,
    head_tape,
    layer_tape,
    logit_count,
    logits_tape,
)
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.tape import OptionRow, Tape, measure

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitTerms:
    """What of the head's row is logits, in bytes.

    ``held_by_caller_bytes`` is in neither the retained bytes nor the backward peak: it lives as
    long as the caller keeps the model's output, through backward and the optimizer step too.
    """

    count: int
    retained_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    held_by_caller_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """The options of one unit, ``save`` first, and what the chain sees of it.

    ``forward_flops`` and ``forward_moved_bytes`` are those of one forward run; ``logits`` is the
    head's alone.
    """

    name: str
    kind: UnitKind
    options: tuple[OptionRow, ...]
    input_bytes: int
    output_bytes: int
    forward_flops: int
    forward_moved_bytes: int
    forward_work: tuple[tuple[int, int], ...]
    logits: LogitTerms | None = None

    def option(self, name: str) -> OptionRow:
        """Return the row of one option by name."""
        return next(row for row in self.options if row.name == name)


def option_table(
    architecture: Architecture, profile: KernelProfile, shape: Shape
) -> tuple[BlockOptions, ...]:
    """Return the options of every unit, in execution order."""
    check_shape(architecture, shape)
    kinds = _kinds(architecture, profile, shape)
    return tuple(replace(kinds[unit.kind], name=unit.name) for unit in architecture.units)


def roofline_ns(row: OptionRow, flops_per_s: float, bytes_per_s: float) -> int:
    """Return the nanoseconds of a row's recomputation, rounded up."""
    return work_ns(row.work, flops_per_s, bytes_per_s)


def work_ns(work: tuple[tuple[int, int], ...], flops_per_s: float, bytes_per_s: float) -> int:
    """Sum, over operations, the larger of FLOPs / rate and bytes / bandwidth; rounded up.

    ``work`` has a (FLOPs, bytes moved) pair per operation: eager kernels run one after another,
    and each is bound by the one or the other.
    """
    seconds = sum(max(flops / flops_per_s, moved / bytes_per_s) for flops, moved in work)
    return -int(-seconds * NANOSECONDS // 1)


@lru_cache(maxsize=256)
def _kinds(
    architecture: Architecture, profile: KernelProfile, shape: Shape
) -> dict[UnitKind, BlockOptions]:
    """Simulate each kind of block once; the names are still to be given."""
    embedding = embedding_tape(architecture, profile, shape)
    layer = layer_tape(architecture, profile, shape)
    head = head_tape(architecture, profile, shape)
    logits = _logit_terms(architecture, profile, shape)
    return {
        UnitKind.EMBEDDING: _block(UnitKind.EMBEDDING, embedding),
        UnitKind.LAYER: _block(UnitKind.LAYER, layer),
        UnitKind.HEAD: replace(_block(UnitKind.HEAD, head), logits=logits),
    }


def _block(kind: UnitKind, tape: Tape) -> BlockOptions:
    options: tuple[OptionRow, ...] = (measure(tape, save=True),)
    if kind is UnitKind.LAYER:
        options = (*options, measure(tape, save=False))
    work = tuple((op.flops, op.moved_bytes) for op in tape.operations if op.writes)
    return BlockOptions(
        name="",
        kind=kind,
        options=options,
        input_bytes=tape.storages[tape.input].size_bytes,
        output_bytes=tape.storages[tape.output].size_bytes,
        forward_flops=sum(flops for flops, _ in work),
        forward_moved_bytes=sum(moved for _, moved in work),
        forward_work=work,
    )


def _logit_terms(architecture: Architecture, profile: KernelProfile, shape: Shape) -> LogitTerms:
    row = measure(logits_tape(architecture, profile, shape), save=True)
    count = logit_count(architecture, profile, shape)
    held = count * shape.compute_bytes if profile.logits_held_by_caller else 0
    return LogitTerms(
        count=count,
        retained_bytes=row.retained_bytes,
        forward_peak_bytes=row.forward_peak_bytes,
        backward_peak_bytes=row.backward_peak_bytes,
        held_by_caller_bytes=held,
    )
