"""Which algorithm, type of cell and device solves a problem, and why.

A core search takes microseconds on most instances and has no bound on the hard ones; a dense DP
takes a time that is known beforehand. So the core goes first, with as many states as cost what the
dense DP would, and hands over: by the costs of ``haversack_kernels.dispatch_cost`` both together
take at most twice as long as the better of the two. The core looks at bytes. Where a dense DP over
bytes would take too long or too much memory, the core has all the states that it may have, and a
dense DP in a coarser unit follows only if rounding costs less than the gap that is left.

Devices are what is handed in: what a dense DP costs there, and how to solve on it. One that fails
is left out, and the others solve. Knows nothing of requests or of processes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haversack_kernels import ceiling, knapsack, prices, slots
from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, integer, signals, total
from haversack_kernels.columns import checked, sum_of_largest
from haversack_kernels.devices import CPU, Device, cheapest, cpu
from haversack_kernels.dispatch_cost import STATE_NS, Work, states_worth
from haversack_kernels.dispatch_ways import (
    MOST_DENSE_NS,
    Explanation,
    Way,
    after,
    cheapest_way,
    others,
)
from haversack_kernels.errors import DeviceFailedError, SolveCancelled
from haversack_kernels.knapsack import Problem, Selection
from haversack_kernels.sweep import Table
from haversack_kernels.unsettled import left_by, with_choice

__all__ = [
    "CPU",
    "Device",
    "Explanation",
    "cpu",
    "explain_knapsack",
    "solve_ceiling",
    "solve_knapsack",
]


class _Question(NamedTuple):
    """Hold what was asked of ``solve_knapsack``."""

    sizes: Int64
    gains: Int64
    capacity: int
    state_limit: int
    devices: Sequence[Device]
    cancel: CancelFlag | None


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
    state_limit = integer("state_limit", state_limit)
    if stop.cancel[0]:
        raise SolveCancelled(0)
    if isinstance(problem, Selection):
        return problem, _by_core("all candidates fit")
    asked = _Question(sizes, gains, capacity, state_limit, devices, cancel)
    exact: list[Way | None] = []  # one, once the core asks for it

    def allowance() -> int:
        exact.append(cheapest_way(problem, devices, problem.runs.size_unit))
        return state_limit if exact[0] is None else states_worth(exact[0].ns)

    selection = knapsack.search(problem, state_limit, stop, allowance)
    if not exact:
        proven = "proven by bounds" if selection.proven else "a quick look was allowed"
        return selection, _by_core(proven)
    if selection.proven:
        return selection, _by_core(_within(exact[0], state_limit))
    if exact[0] is None:
        return _closer(asked, problem, selection)
    return _densely(asked, exact[0], problem, selection)


def explain_knapsack(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    state_limit: int = knapsack.DEFAULT_STATE_LIMIT,
    devices: Sequence[Device] = (CPU,),
) -> Explanation:
    """Say what ``solve_knapsack`` would do, without solving."""
    problem = knapsack.reduced(sizes, gains, capacity)
    if isinstance(problem, Selection):
        return _by_core("all candidates fit")
    exact = cheapest_way(problem, devices, problem.runs.size_unit)
    if exact is None:
        return _by_core("a dense DP over all sizes would take too long or too much memory")
    return _handed_over(exact, state_limit)


def _by_core(reason: str) -> Explanation:
    return Explanation("core", "", "cpu", reason)


def _within(exact: Way | None, state_limit: int) -> str:
    if exact is None:
        return "proven by the search; no dense DP would do in time and memory"
    states = min(states_worth(exact.ns), state_limit)
    return f"proven by the search, within the {states} states that {exact}, is worth"


def _handed_over(exact: Way, state_limit: int) -> Explanation:
    states = min(states_worth(exact.ns), state_limit)
    reason = f"the core may look at {states} states, then come {exact}"
    return Explanation("core, then dense", exact.cells, exact.device.name, reason)


def _densely(
    asked: _Question, planned: Way, problem: Problem, selection: Selection
) -> tuple[Selection, Explanation]:
    """Choose from what is left by a dense DP; if its device fails, from the start on the others."""
    sizes, gains, capacity, state_limit, devices, cancel = asked
    left = left_by(problem, selection)
    way = cheapest_way(left, devices, planned.size_unit) or planned
    try:
        chosen = way.solve(left, cancel)
    except DeviceFailedError as failed:
        rest = others(devices, way.device)
        selection, why = solve_knapsack(
            sizes, gains, capacity, state_limit=state_limit, devices=rest, cancel=cancel
        )
        return selection, after(way.device, failed, why)
    found = with_choice(problem, left, chosen.mask, selection)
    why = _handed_over(planned, state_limit)
    reason = f"{why.reason}; bounds left it {left.size.size} candidates: {way}"
    why = why._replace(cells=way.cells, device=way.device.name, reason=reason)
    return found._replace(upper_bound=found.gain, proven=True), why


def _closer(
    asked: _Question, problem: Problem, selection: Selection
) -> tuple[Selection, Explanation]:
    """Try to come closer to the bound in a unit that costs no more than the core has."""
    gap = (selection.upper_bound - selection.gain) / max(selection.gain, 1)
    reason = f"after {asked.state_limit} states at most {gap:.1e} of the gain is missing"
    left = left_by(problem, selection)
    # Rounding loses half the gap.
    unit = int(gap * problem.capacity / max(left.size.size, 1) / 2)
    way = cheapest_way(left, asked.devices, problem.runs.size_unit, unit) if unit > 1 else None
    if way is None or way.ns > asked.state_limit * STATE_NS:
        return selection, _by_core(f"{reason}, less than rounding would lose")
    try:
        chosen = way.solve(left, asked.cancel)
    except DeviceFailedError as failed:
        rest = asked._replace(devices=others(asked.devices, way.device))
        selection, why = _closer(rest, problem, selection)
        return selection, after(way.device, failed, why)
    how = Explanation("core, then dense", way.cells, way.device.name, f"{reason}; then {way}")
    return with_choice(problem, left, chosen.mask, selection), how


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
    in_flight, state_limit = integer("in_flight", in_flight), integer("state_limit", state_limit)
    chain = checked(offsets, retained, forward_peak, backward_peak, in_flight)
    table = ceiling.table(chain, extra, forward_capacity, backward_capacity, in_flight)
    choice = ceiling.solve_table(table, in_flight, state_limit, signals(cancel))
    if choice.proven:
        return choice, _by_lists("proven by bounds")
    if in_flight > 1:
        return choice, _by_lists("several in flight: no dense DP counts them")
    if sum_of_largest("extra", table.extra, table.offsets, MAX_INT64) >= slots.MOST_EXTRA:
        return choice, _by_lists("no cell of a dense DP holds extras that sum up to 2^62")
    return _closer_in_slots(table, choice, state_limit, devices, cancel)


def _by_lists(reason: str) -> Explanation:
    return Explanation("lists", "", "cpu", reason)


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
    work = _in_slots(table, gap)
    offer = cheapest(devices, lambda device: device.chain_ns(work))
    if offer is None or offer.ns > min(state_limit * STATE_NS, MOST_DENSE_NS):
        return choice, _by_lists(f"{reason}, less than rounding would cost")
    device = offer.device
    try:
        found = device.chain(table, slots=work.row, cancel=cancel)
    except DeviceFailedError as failed:
        rest = others(devices, device)
        choice, why = _closer_in_slots(table, choice, state_limit, rest, cancel)
        return choice, after(device, failed, why)
    if found is not None and found[1] < choice.extra:
        choice = choice._replace(
            options=found[0], extra=found[1], proven=found[1] == choice.lower_bound
        )
    how = f"{reason}; then {work.row} slots on {device.name}, {offer}"
    return choice, Explanation("lists, then slots", work.kind, device.name, how)


def _in_slots(table: Table, gap: int) -> Work:
    """Return a dense DP in which a slot of each block costs the gap."""
    price, blocks = float(prices.tuned(table).price.sum()), table.offsets.size - 1
    span = min(int(table.ceiling.max()), total(table.retained))
    row = int(span * blocks * price / gap) + slots.LEAST_SLOTS
    kind = np.dtype(slots.cell_type(table.extra, table.offsets)).name
    return Work(kind, row, float(row) * table.retained.size, rows=blocks, size_sum=0.0)
