"""Where dense DPs run: a device is what they cost there, and how to solve on it.

Knows the CPU; others are handed in. Knows no algorithm and nothing of processes.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

from haversack_kernels import dense, slots
from haversack_kernels._jit import Int64
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.dispatch_cost import Work, cpu_chain_ns, cpu_one_ns
from haversack_kernels.sweep import Table

MEBIBYTE = 1 << 20


class Device(NamedTuple):
    """Describe where dense DPs run and what they take there.

    ``one_ns`` gives the nanoseconds of a knapsack, ``chain_ns`` those of a chain in slots; infinity
    where the memory does not do. ``one`` is called as ``one(sizes, gains, capacity, unit=unit,
    cancel=cancel)`` and gives what ``dense.solve_one`` gives, ``chain`` as ``chain(table,
    slots=slots, cancel=cancel)`` and gives what ``slots.solve_one`` gives; either may raise
    ``DeviceFailedError``, after which the other devices are asked.
    """

    name: str
    one_ns: Callable[[Work], float]
    chain_ns: Callable[[Work], float]
    one: Callable[..., dense.Chosen]
    chain: Callable[..., tuple[Int64, int] | None]


def cpu(memory_bytes: int = dense.DEFAULT_ARENA_LIMIT_BYTES) -> Device:
    """Return the CPU, with so many bytes for a solve."""

    def one_ns(work: Work) -> float:
        rows_bytes = 2 * work.row_bytes
        if rows_bytes + MEBIBYTE > memory_bytes:
            return inf
        halving = 1.0 if rows_bytes + work.cells / 8 <= memory_bytes else 2.0
        return halving * cpu_one_ns(work)

    def chain_ns(work: Work) -> float:
        needed = 2 * work.row_bytes + work.cells / 8 + MEBIBYTE
        return cpu_chain_ns(work) if needed <= memory_bytes else inf

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

    return Device("cpu", one_ns, chain_ns, one, chain)


CPU = cpu()


class Offer(NamedTuple):
    """Hold the device that takes least time, what it takes, and what the others would."""

    device: Device
    ns: float
    others: str

    def __str__(self) -> str:
        return f"{_ms(self.ns)}{self.others}"


def cheapest(devices: Iterable[Device], cost: Callable[[Device], float]) -> Offer | None:
    """Return the device of least finite cost, if there is one."""
    costs = [(cost(device), device) for device in devices]
    ns, chosen = min(costs, key=lambda each: each[0], default=(inf, None))
    if chosen is None or ns == inf:
        return None
    others = [f"{device.name}: {_ms(its)}" for its, device in costs if device is not chosen]
    return Offer(chosen, ns, f" ({', '.join(others)})" if others else "")


def _ms(ns: float) -> str:
    return "too little memory" if ns == inf else f"{ns / 1e6:.1f} ms"
