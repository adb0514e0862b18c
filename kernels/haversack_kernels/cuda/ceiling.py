"""Dense ceiling DP on a CUDA device: one option per block at least extra cost, for many chains.

The problem of ``haversack_kernels.ceiling``, in slots of ``unit`` bytes; time is a cell per option
and slot, whatever the extras, so it serves where Pareto lists grow. Of the plans of least extra it
takes the one that retains least, then, from the last block backwards, the lower option: with
``unit=1`` the plan that ``ceiling.solve`` proves. One chain under many budgets is a batch.

Rows and decisions stay on the device, and so does the walk back; one row per chain is looked at.
Numba's simulator runs all of it on small problems (``NUMBA_ENABLE_CUDASIM=1``, set before import).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import CancelFlag, Int64
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.cuda.ceiling_sweep import sweep, traced
from haversack_kernels.cuda.ceiling_tables import Chain, Slots, slotted, tabled
from haversack_kernels.cuda.launch import free_bytes, on_device, watch
from haversack_kernels.dense_rows import Watch

__all__ = ["Chain", "Planned", "solve", "solve_batch"]

MOST_SIDE_BY_SIDE = 1 << 15
"""Chains of one launch; CUDA takes twice as many."""

MOST_STEPS = 1 << 21
"""Chains times steps, of which a table is kept: at most 96 MiB."""


class Planned(NamedTuple):
    """Say which option every block takes and what they cost together.

    ``options`` has shape ``(blocks,)``: rows of the option columns, -1 where nothing is
    ``feasible``; then ``extra`` is 0. ``exact`` means that no size was rounded: then ``extra`` is
    the least, or there surely is no plan. Else rounding may have hidden a better plan.
    """

    options: Int64
    extra: int
    feasible: bool
    exact: bool


def solve(
    chain: Chain,
    *,
    unit: int = 1,
    memory_limit_bytes: int | None = None,
    fuse: bool = True,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> Planned:
    """Choose one option per block; see ``solve_batch``."""
    return solve_batch(
        [chain],
        unit=unit,
        memory_limit_bytes=memory_limit_bytes,
        fuse=fuse,
        cancel=cancel,
        progress=progress,
    )[0]


def solve_batch(
    chains: Sequence[Chain],
    *,
    unit: int = 1,
    memory_limit_bytes: int | None = None,
    fuse: bool = True,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> list[Planned]:
    """Choose for every chain one option per block so that all ceilings hold at least extra.

    ``fuse`` is for measurements. ``progress``, two int64, is kept at [blocks done, blocks in all].
    The memory limit is what the device has free where none is given.

    Raises ``ArenaLimitError`` if a chain takes more, ``OverflowError`` if sums may leave int64,
    ``SolveCancelled`` soon after ``cancel[0]`` is set, ``NoDeviceError`` and ``DeviceFaultError``.
    """
    watched = watch(cancel, progress)
    slots = [slotted(chain, unit) for chain in chains]
    planned = [_easy(chain, each) for chain, each in zip(chains, slots, strict=True)]
    hard = [(p, each) for p, each in enumerate(slots) if each is not None and each.blocks]
    watched.progress[1] = sum(each.blocks for _, each in hard)
    with on_device():
        limit = free_bytes() if memory_limit_bytes is None else memory_limit_bytes
    for p, each in hard:
        if limit is not None and each.size_bytes > limit:
            raise _refusal(chains[p], each, unit, limit)
    for portion in _portions(hard, limit):
        _solve(chains, portion, unit, fuse, watched, planned)
    return planned


def _easy(chain: Chain, slots: Slots | None) -> Planned:
    """Return the answer of a chain without blocks, or of one without an option somewhere."""
    options = np.full(max(chain.offsets.size - 1, 0), -1, dtype=np.int64)
    return Planned(options, 0, feasible=slots is not None, exact=True)


def _portions(hard: list[tuple[int, Slots]], limit: int | None) -> list[list[tuple[int, Slots]]]:
    """Cut chains into portions that fit the limit together."""
    portions: list[list[tuple[int, Slots]]] = []
    used = 0
    for p, each in sorted(hard, key=lambda one: one[1].blocks):  # those of a portion end together
        need = each.size_bytes
        most = min(MOST_SIDE_BY_SIDE, max(MOST_STEPS // each.blocks, 1))
        full = not portions or len(portions[-1]) >= most
        if full or (limit is not None and used + need > limit):
            portions.append([])
            used = 0
        portions[-1].append((p, each))
        used += need
    return portions


def _solve(
    chains: Sequence[Chain],
    portion: list[tuple[int, Slots]],
    unit: int,
    fuse: bool,
    watched: Watch,
    planned: list[Planned],
) -> None:
    """Write the plans of a portion to ``planned``, in halves if memory is short."""
    try:
        with on_device():
            for (p, _), plan in zip(portion, _plans(portion, fuse, watched), strict=True):
                planned[p] = plan
        return
    except MemoryError as error:
        if len(portion) == 1:
            p, each = portion[0]
            raise _refusal(chains[p], each, unit, free_bytes()) from error
    middle = len(portion) // 2
    for half in (portion[:middle], portion[middle:]):
        _solve(chains, half, unit, fuse, watched, planned)


def _plans(portion: list[tuple[int, Slots]], fuse: bool, watched: Watch) -> list[Planned]:
    own = [each for _, each in portion]
    swept = sweep(own, tabled(own, fuse=fuse), watched)
    rows = [swept.row(k) for k in range(len(own))]
    least = np.array([int(row.argmin()) for row in rows])  # the first: of equal extra the leanest
    feasible = [k for k, row in enumerate(rows) if row[least[k]] != swept.tables.never]
    plans = [Planned(np.full(each.blocks, -1), 0, feasible=False, exact=each.exact) for each in own]
    if feasible:
        taken = traced(swept, np.array(feasible), least[feasible]).astype(np.int64)
        for answer, k in enumerate(feasible):
            options = own[k].offsets[:-1] + taken[: own[k].blocks, answer]
            plans[k] = Planned(options, int(rows[k][least[k]]), feasible=True, exact=own[k].exact)
    return plans


def _refusal(chain: Chain, slots: Slots, unit: int, limit: int | None) -> ArenaLimitError:
    """Return the error that names the memory needed and the unit that would do."""
    needed = slots.size_bytes
    within = needed - 1 if limit is None else min(limit, needed - 1)
    coarser = _coarser_unit(chain, slots, unit, within)
    advice = "no unit would do" if coarser is None else f"unit={coarser} would do"
    return ArenaLimitError(
        f"{slots.blocks} blocks in up to {slots.cells} cells of {unit} take {needed} bytes of "
        f"memory, above the limit of {within}: {advice}",
        needed_bytes=needed,
        unit=coarser,
    )


def _coarser_unit(chain: Chain, slots: Slots, unit: int, limit: int) -> int | None:
    """Return a unit with which the need is within the limit, tried out."""
    needed, largest = slots.size_bytes, unit * slots.cells
    while unit <= largest:
        unit = max(unit + 1, unit * needed // max(limit, 1))
        coarser = slotted(chain, unit)
        if coarser is None:  # every ceiling of a block is below one cell
            return None
        needed = coarser.size_bytes
        if needed <= limit:
            return unit
    return None
