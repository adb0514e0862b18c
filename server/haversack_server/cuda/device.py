"""The CUDA device as dispatch sees it: what its solves cost, how they are asked, what is believed.

What comes back is checked: a subset fits and is worth what it says, a plan is allowed and costs
what it says. Knows nothing of the process that answers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import CancelFlag, Int64, total
from haversack_kernels.cuda import memory_needed
from haversack_kernels.dense import Chosen
from haversack_kernels.devices import Device
from haversack_kernels.dispatch_cost import Work, cuda_chain_ns, cuda_one_ns
from haversack_kernels.slots import unit_for
from haversack_kernels.sweep import Table
from haversack_server.cuda.arrays import Message

Question = tuple[Mapping[str, Any], Sequence[NDArray[Any]]]
Ask = Callable[[Question, CancelFlag | None, Callable[[Message], Any]], Any]
"""Asks, heeding a cancel flag, and gives what the reader makes of the answer.

A reader raises ValueError, KeyError or TypeError for an answer that cannot be believed.
"""


def described(said: Mapping[str, Any], ask: Ask) -> Device:
    """Return the device that a worker said it has; in a simulator its ``memory_bytes`` are None."""
    memory_bytes = inf if said["memory_bytes"] is None else said["memory_bytes"]

    def one_ns(work: Work) -> float:
        needed = memory_needed(work.rows, work.row + 1, work.kind)
        return cuda_one_ns(work) if needed <= memory_bytes else inf

    def chain_ns(work: Work) -> float:
        needed = 2 * work.row_bytes + work.rows * work.row  # a byte per block and slot
        return cuda_chain_ns(work) if needed <= memory_bytes else inf

    def one(
        sizes: Int64, gains: Int64, capacity: int, *, unit: int, cancel: CancelFlag | None
    ) -> Chosen:
        question = {"solve": "knapsack", "capacity": capacity, "unit": unit}, [sizes, gains]
        chosen: Chosen = ask(question, cancel, lambda each: _subset(sizes, gains, capacity, each))
        return chosen

    def chain(table: Table, *, slots: int, cancel: CancelFlag | None) -> tuple[Int64, int] | None:
        question = {"solve": "chain", "unit": unit_for(table, slots)}, list(table)
        plan: tuple[Int64, int] | None = ask(question, cancel, lambda each: _plan(table, each))
        return plan

    return Device(said["name"], one_ns, chain_ns, one, chain)


def _subset(sizes: Int64, gains: Int64, capacity: int, answer: Message) -> Chosen:
    said, (mask,) = answer
    if mask.dtype != np.bool_ or mask.shape != sizes.shape:
        raise ValueError("no subset of the candidates")
    if total(sizes[mask]) > capacity or total(gains[mask]) != said["gain"]:
        raise ValueError("a subset that does not fit, or is not worth what it says")
    return Chosen(mask, said["gain"])


def _plan(table: Table, answer: Message) -> tuple[Int64, int] | None:
    said, (options,) = answer
    if not said["feasible"]:
        return None
    if not _is_allowed(table, options) or total(table.extra[options]) != said["extra"]:
        raise ValueError("a plan that is not allowed, or does not cost what it says")
    return options, said["extra"]


def _is_allowed(table: Table, options: NDArray[Any]) -> bool:
    """Tell whether there is one option of each block, and all are within their ceilings."""
    first, beyond = table.offsets[:-1], table.offsets[1:]
    if options.dtype != np.int64 or options.shape != first.shape:
        return False
    if not ((first <= options) & (options < beyond)).all():
        return False
    retained = table.retained[options]
    return bool((np.cumsum(retained) - retained <= table.ceiling[options]).all())
