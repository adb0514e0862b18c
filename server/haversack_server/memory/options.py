"""The option table of a model: one row per way to run each block, read off the blocks' tapes.

Equal blocks share their rows, so each tape is simulated once. Knows nothing of model states,
phases or budgets.
"""

import enum
from dataclasses import dataclass, replace
from functools import lru_cache

from haversack_server.memory.architecture import Architecture, UnitKind
from haversack_server.memory.blocks import (
    Shape,
    check_shape,
    head_tape,
    logit_count,
    logits_tape,
)
from haversack_server.memory.embeddings import bridge_tape, embedding_tape
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.layers import layer_tape
from haversack_server.memory.moved_activations import moved
from haversack_server.memory.parts import FLOAT_BYTES
from haversack_server.memory.policies import regions_of, selective
from haversack_server.memory.prediction import predicting_head, recomputed
from haversack_server.memory.same import Same
from haversack_server.memory.tape import OptionRow, Tape, measure
from haversack_server.memory.traits import Stack

NANOSECONDS = 1_000_000_000


class Made(enum.Enum):
    """Up to which option a table is made, in the order of its rows."""

    SAVE = "save"
    RECOMPUTE = "recompute"
    ALL = "all"


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
    head's alone, and None where not all options were asked for.
    """

    name: str
    kind: UnitKind
    options: tuple[OptionRow, ...]
    input_bytes: int
    output_bytes: int
    forward_flops: int
    forward_moved_bytes: int
    forward_work: tuple[tuple[int, int], ...]
    held_by_caller_bytes: int = 0
    logits: LogitTerms | None = None

    def option(self, name: str) -> OptionRow:
        """Return the row of one option by name."""
        return next(row for row in self.options if row.name == name)


def option_table(
    architecture: Architecture, profile: KernelProfile, shape: Shape, *, up_to: Made = Made.ALL
) -> tuple[BlockOptions, ...]:
    """Return the options of every unit, in execution order, ``up_to`` those that are needed."""
    check_shape(architecture, shape)
    return _table(Same(architecture), Same(profile), shape, up_to)


@lru_cache(maxsize=64)
def _table(
    of_model: Same[Architecture], of_profile: Same[KernelProfile], shape: Shape, up_to: Made
) -> tuple[BlockOptions, ...]:
    """Name the options of every unit once for all runs that share them."""
    architecture, profile = of_model.value, of_profile.value
    made: dict[tuple[UnitKind, int], BlockOptions] = {}
    for unit in architecture.units:
        key = (unit.kind, id(unit.variant))
        if key not in made:
            model = unit.variant or architecture
            made[key] = _options_of(unit.kind, model, profile, shape, up_to)
    return tuple(
        _named(unit.name, made[unit.kind, id(unit.variant)]) for unit in architecture.units
    )


def _named(name: str, block: BlockOptions) -> BlockOptions:
    # Not ``replace``, which looks at every field first: a model has a hundred units.
    return BlockOptions(
        name=name,
        kind=block.kind,
        options=block.options,
        input_bytes=block.input_bytes,
        output_bytes=block.output_bytes,
        forward_flops=block.forward_flops,
        forward_moved_bytes=block.forward_moved_bytes,
        forward_work=block.forward_work,
        held_by_caller_bytes=block.held_by_caller_bytes,
        logits=block.logits,
    )


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


@lru_cache(maxsize=1024)
def _options_of(
    kind: UnitKind, model: Architecture, profile: KernelProfile, shape: Shape, up_to: Made
) -> BlockOptions:
    """Simulate a unit once for all that are equal; the name is still to be given."""
    if up_to is not Made.SAVE:
        saved = _options_of(kind, model, profile, shape, Made.SAVE)
        return _with_more(kind, saved, model, profile, shape, up_to)
    tape = tape_of(kind, model, profile, shape)
    made = _block(kind, tape)
    if shape.offload_modules and kind is UnitKind.LAYER:
        return replace(made, options=(moved(tape, made.options[0], (), shape),))
    if kind is not UnitKind.HEAD:
        return made
    return replace(made, held_by_caller_bytes=_held_by_caller(model, profile, shape))


def _with_more(
    kind: UnitKind,
    saved: BlockOptions,
    model: Architecture,
    profile: KernelProfile,
    shape: Shape,
    up_to: Made,
) -> BlockOptions:
    """Add the options that run layers again, and what of a head is logits."""
    tape = tape_of(kind, model, profile, shape)
    again: tuple[OptionRow, ...] = ()
    if kind is UnitKind.HEAD:
        if up_to is Made.ALL:
            saved = replace(saved, logits=_logit_terms(model, profile, shape))
        again = (recomputed(tape),) if model.prediction_layers else ()
    elif kind is UnitKind.LAYER:
        again = (measure(tape, save=False),)
    if not again or up_to is Made.RECOMPUTE:
        return replace(saved, options=(*saved.options, *again)) if again else saved
    partly = selective(tape, profile, shape.recompute_modules)
    if shape.offload_modules and kind is UnitKind.LAYER:
        partly = moved(tape, partly, regions_of(tape, shape.recompute_modules), shape)
    return replace(saved, options=(*saved.options, *again, partly))


@lru_cache(maxsize=1024)
def tape_of(kind: UnitKind, model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Write the tape of a unit; once for all that are equal."""
    if kind is UnitKind.LAYER:
        return layer_tape(model, profile, shape)
    if kind is UnitKind.HEAD:
        predicts = model.prediction_layers > 0
        return (predicting_head if predicts else head_tape)(model, profile, shape)
    bridges = model.stack is Stack.CROSS and not model.encoder_layers
    return (bridge_tape if bridges else embedding_tape)(model, profile, shape)


def _block(kind: UnitKind, tape: Tape) -> BlockOptions:
    work = tuple((op.flops, op.moved_bytes) for op in tape.operations if op.writes)
    return BlockOptions(
        name="",
        kind=kind,
        options=(measure(tape, save=True),),
        input_bytes=tape.storages[tape.input].size_bytes,
        output_bytes=tape.storages[tape.output].size_bytes,
        forward_flops=sum(flops for flops, _ in work),
        forward_moved_bytes=sum(moved for _, moved in work),
        forward_work=work,
    )


def _held_by_caller(architecture: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Give the bytes of the logits that the caller keeps, where it does."""
    if not profile.logits_held_by_caller:
        return 0
    each = FLOAT_BYTES if profile.logits_returned_in_fp32 else shape.logit_bytes
    return logit_count(architecture, profile, shape) * each


def _logit_terms(architecture: Architecture, profile: KernelProfile, shape: Shape) -> LogitTerms:
    row = measure(logits_tape(architecture, profile, shape), save=True)
    return LogitTerms(
        count=logit_count(architecture, profile, shape),
        retained_bytes=row.retained_bytes,
        forward_peak_bytes=row.forward_peak_bytes,
        backward_peak_bytes=row.backward_peak_bytes,
        held_by_caller_bytes=_held_by_caller(architecture, profile, shape),
    )
