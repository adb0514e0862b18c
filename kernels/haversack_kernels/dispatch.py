"""Which algorithm, type of cell and device solves a problem, and why.

A core search takes microseconds on most instances and has no bound on the hard ones; a dense DP
takes a time that is known beforehand. So the core goes first, with about as many states as cost
what the dense DP would, and hands over (``haversack_kernels.dispatch_cost``). The core looks at
bytes. Where a dense DP over bytes would take too long or too much memory, the core has all the
states that it may have, and a dense DP in a coarser unit follows only if rounding costs less than
the gap that is left.

Devices are what is handed in: a device is its speed, its memory and how to solve on it. Knows
nothing of requests.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from haversack_kernels import ceiling, dense, knapsack, prices, slots
from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, signals, total
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.columns import checked
from haversack_kernels.dense_rows import cell_type
from haversack_kernels.dispatch_cost import (
    CANDIDATE_NS,
    CORE_NS,
    SHARE,
    SOLVE_NS,
    STATE_NS,
    cell_ns,
    dense_cells,
)
from haversack_kernels.knapsack import Problem, Selection
from haversack_kernels.sweep import Table

MOST_DENSE_NS = 3e9

MEBIBYTE = 1 << 20


class Device(NamedTuple):
    """Describe where dense DPs run, what they take, and the bytes of memory there are.

    ``cell_ns`` gives the nanoseconds of a cell of a type ("int32", ...) in a row of so many.
    ``one`` is called as ``one(sizes, gains, capacity, unit=unit, cancel=cancel)`` and gives what
    ``dense.solve_one`` gives, ``chain`` as ``chain(table, slots=slots, cancel=cancel)`` and gives
    what ``slots.solve_one`` gives. Of several devices the one that takes least time is used, its
    ``solve_ns`` included; a device that fails has to solve elsewhere by itself.
    """

    name: str
    cell_ns: Callable[[str, int], float]
    solve_ns: float
    memory_bytes: int
    one: Callable[..., dense.Chosen]
    chain: Callable[..., tuple[Int64, int] | None]


def cpu(memory_bytes: int = dense.DEFAULT_ARENA_LIMIT_BYTES) -> Device:
    """Return the CPU, with so many bytes for a solve."""

    def one(sizes: Int64, gains: Int64, capacity: int, **options: Any) -> dense.Chosen:
        try:
            return dense.solve_one(
                sizes, gains, capacity, arena_limit_bytes=memory_bytes, **options
            )
        except ArenaLimitError:  # all decisions take too much: keep 1 MiB of them
            return dense.solve_one(
                sizes,
                gains,
                capacity,
                memory="hirschberg",
                arena_limit_bytes=memory_bytes,
                **options,
            )

    def chain(table: Table, **options: Any) -> tuple[Int64, int] | None:
        return slots.solve_one(table, arena_limit_bytes=memory_bytes, **options)

    return Device("cpu", cell_ns, SOLVE_NS, memory_bytes, one, chain)


CPU = cpu()


class Explanation(NamedTuple):
    """Say what solved, or would solve, a problem: ``cells`` is "" where no dense DP takes part."""

    algorithm: str
    cells: str
    device: str
    reason: str


class _Dense(NamedTuple):
    """Hold a way to solve by a dense DP, and what it costs."""

    device: Device
    cells: str
    unit: int
    ns: float

    def __str__(self) -> str:
        unit = "" if self.unit == 1 else f" in units of {self.unit}"
        return f"{self.cells} cells on {self.device.name}{unit}, {self.ns / 1e6:.1f} ms"


def solve_knapsack(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    state_limit: int = knapsack.DEFAULT_STATE_LIMIT,
    devices: Sequence[Device] = (CPU,),
    cancel: CancelFlag | None = None,
) -> tuple[Selection, Explanation]:
    """Choose as ``knapsack.solve`` does, handing over to a dense DP where that is cheaper.

    ``state_limit`` holds where no dense DP can be exact in time.
    """
    problem, stop = knapsack.reduced(sizes, gains, capacity), signals(cancel)
    if isinstance(problem, Selection):
        return problem, Explanation("core", "", "", "all candidates fit")
    exact: list[_Dense | None] = []  # one, once the core asks for it

    def allowance() -> int:
        exact.append(_cheapest(problem, sizes.size, devices, 1))
        return state_limit if exact[0] is None else _states(exact[0])

    selection = knapsack.search(problem, state_limit, stop, allowance)
    if selection.proven or not exact:
        return selection, Explanation("core", "", "", "a quick look was allowed")
    if exact[0] is None:
        return _closer(sizes, gains, capacity, problem, selection, state_limit, devices, cancel)
    chosen = exact[0].device.one(sizes, gains, capacity, unit=1, cancel=cancel)
    return Selection(chosen.mask, chosen.gain, chosen.gain, True), _handed_over(exact[0])


def explain_knapsack(
    sizes: Int64, gains: Int64, capacity: int, *, devices: Sequence[Device] = (CPU,)
) -> Explanation:
    """Say what ``solve_knapsack`` would do, without solving."""
    problem = knapsack.reduced(sizes, gains, capacity)
    if isinstance(problem, Selection):
        return Explanation("core", "", "", "all candidates fit")
    exact = _cheapest(problem, sizes.size, devices, 1)
    if exact is None:
        reason = "a dense DP over all sizes would take too long or too much memory"
        return Explanation("core", "", "", reason)
    return _handed_over(exact)


def _states(exact: _Dense) -> int:
    """Return how many states the core may look at before the dense solve is the better bet."""
    return max(int((SHARE * exact.ns - CORE_NS) / STATE_NS), 0)


def _handed_over(exact: _Dense) -> Explanation:
    reason = f"the core may look at {_states(exact)} states, then come {exact}"
    return Explanation("core, then dense", exact.cells, exact.device.name, reason)


def _cheapest(
    problem: Problem, candidates: int, devices: Sequence[Device], unit: int
) -> _Dense | None:
    """Return the cheapest dense DP in this unit, if there is one in time and memory."""
    most = min(problem.gain_sum, MAX_INT64)
    kind = np.dtype(cell_type(np.array([most])).dtype)
    cells, row = dense_cells(problem) / unit, problem.capacity // unit
    ways = []
    for device in devices:
        rows_bytes = 2 * row * kind.itemsize
        halving = 1.0 if rows_bytes + cells / 8 <= device.memory_bytes else 2.0
        ns = device.solve_ns + candidates * CANDIDATE_NS
        ns += cells * device.cell_ns(kind.name, row) * halving
        if rows_bytes + MEBIBYTE <= device.memory_bytes and ns <= MOST_DENSE_NS:
            ways.append(_Dense(device, kind.name, unit * problem.runs.size_unit, ns))
    return min(ways, key=lambda way: way.ns, default=None)


def _closer(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    problem: Problem,
    selection: Selection,
    state_limit: int,
    devices: Sequence[Device],
    cancel: CancelFlag | None,
) -> tuple[Selection, Explanation]:
    """Try to come closer to the bound in a unit that costs no more than the core has."""
    gap = (selection.upper_bound - selection.gain) / max(selection.gain, 1)
    reason = f"after {state_limit} states at most {gap:.1e} of the gain is missing"
    unit = int(gap * problem.capacity / sizes.size / 2)  # rounding loses half the gap
    way = _cheapest(problem, sizes.size, devices, unit) if unit > 1 else None
    if way is None or way.ns > state_limit * STATE_NS:
        return selection, Explanation("core", "", "", f"{reason}, less than rounding would lose")
    chosen = way.device.one(sizes, gains, capacity, unit=way.unit, cancel=cancel)
    if chosen.gain > selection.gain:
        proven = chosen.gain == selection.upper_bound
        selection = Selection(chosen.mask, chosen.gain, selection.upper_bound, proven)
    how = f"{reason}; then {way}"
    return selection, Explanation("core, then dense", way.cells, way.device.name, how)


def solve_ceiling(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    extra: Int64,
    forward_capacity: Int64,
    backward_capacity: Int64,
    *,
    in_flight: int = 1,
    state_limit: int = ceiling.DEFAULT_STATE_LIMIT,
    devices: Sequence[Device] = (CPU,),
    cancel: CancelFlag | None = None,
) -> tuple[ceiling.Choice, Explanation]:
    """Choose as ``ceiling.solve`` does; past its states, a dense DP in slots may come closer.

    The bound is that of the lists, so the answer is certified whichever found it.
    """
    chain = checked(offsets, retained, forward_peak, backward_peak, in_flight)
    table = ceiling.table(chain, extra, forward_capacity, backward_capacity, in_flight)
    choice = ceiling.solve_table(table, in_flight, state_limit, signals(cancel))
    if choice.proven or in_flight > 1:
        reason = "proven" if choice.proven else "several in flight: no dense DP counts them"
        return choice, Explanation("lists", "", "", reason)
    return _closer_in_slots(table, choice, state_limit, devices, cancel)


def _closer_in_slots(
    table: Table,
    choice: ceiling.Choice,
    state_limit: int,
    devices: Sequence[Device],
    cancel: CancelFlag | None,
) -> tuple[ceiling.Choice, Explanation]:
    """Try slots so fine that rounding every block up costs less than the gap at the going price."""
    gap = choice.extra - choice.lower_bound
    reason = f"after {state_limit} states at most {gap / max(choice.extra, 1):.1e} could be spared"
    price, blocks = float(prices.tuned(table).price.sum()), table.offsets.size - 1
    span = min(int(table.ceiling.max()), total(table.retained))
    count = int(span * blocks * price / gap) + 1  # a slot of each block costs the gap
    device = min(devices, key=lambda device: device.cell_ns("int64", count))
    most = int(min(state_limit * STATE_NS, MOST_DENSE_NS) / device.cell_ns("int64", count))
    bits = 8 * device.memory_bytes // (table.retained.size + 128)
    if count * table.retained.size > most or count > bits:
        return choice, Explanation("lists", "", "", f"{reason}, less than rounding would cost")
    found = device.chain(table, slots=count, cancel=cancel)
    if found is not None and found[1] < choice.extra:
        choice = choice._replace(
            options=found[0], extra=found[1], proven=found[1] == choice.lower_bound
        )
    return choice, Explanation(
        "lists, then slots", "int64", device.name, f"{reason}; then {count} slots"
    )
