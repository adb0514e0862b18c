"""A workload for a plan: built once, profiled, then stepped as plans have it, one order at a time.

Whatever the workload's code raises is the answer to the order; the next one is answered anew.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan
from haversack.torch import Workload, profile
from haversack.torch.optimizers import with_optimizer
from haversack.torch.whole_step import whole_step
from haversack.training import Optimizer
from haversack_server.plan.orders import (
    Failure,
    Fault,
    Progress,
    StepOrder,
    WorkerAnswer,
    WorkloadOrder,
)
from haversack_server.verify import frames, records
from haversack_server.worker.errors import BadWorkloadError, is_out_of_memory, text_of
from haversack_server.worker.fork import print_fault
from haversack_server.worker.load import load

_OF_THE_REQUEST = ("blocks", "training.")  # fields; all others are the workload's own


def serve(channel: socket.socket) -> None:
    """Answer the orders of a server until it goes away."""
    message = frames.receive(channel)
    if message is None:
        return
    order = records.from_json(WorkloadOrder, message)
    built: list[Workload] = []

    def first() -> WorkerAnswer:
        torch.set_num_threads(1)
        workload = load(order.workload, allow=order.allow, path=order.path)
        built.append(with_optimizer(workload, order.optimizer))
        found = profile(
            built[0],
            blocks=order.blocks or None,
            precision=order.precision,
            progress=partial(_tell, channel),
        )
        given = built[0].optimizer is not workload.optimizer
        kind = order.optimizer or Optimizer.ADAMW
        return WorkerAnswer(profile=replace(found, optimizer=kind) if given else found)

    _answer(channel, first)
    while built and (message := frames.receive(channel)) is not None:
        step = records.from_json(StepOrder, message)
        _answer(channel, partial(_stepped, built[0], step))


def _tell(channel: socket.socket, what: str, done: int, steps: int) -> None:
    progress = Progress(what=what, done=done, steps=steps)
    frames.send(channel, records.to_json(WorkerAnswer(progress=progress)))


def _stepped(workload: Workload, order: StepOrder) -> WorkerAnswer:
    plan = Plan(actions=order.actions, precision=order.precision, reduce_type=order.reduce_type)
    return WorkerAnswer(
        observed=whole_step(
            workload, plan, microbatches=order.microbatches, parallelism=order.parallelism
        )
    )


def _answer(channel: socket.socket, work: Callable[[], WorkerAnswer]) -> None:
    frames.send(channel, records.to_json(_answered(work)))


def _answered(work: Callable[[], WorkerAnswer]) -> WorkerAnswer:
    try:
        return work()
    except Exception as error:  # whatever the workload's own code raises is the answer
        print_fault()
        return WorkerAnswer(failure=_failure(error))


def _failure(error: Exception) -> Failure:
    first_line = text_of(error).strip().partition("\n")[0]
    said = f": {first_line}" if first_line else ""
    if is_out_of_memory(error):
        message = f"the workload asked for more memory than its process may take{said}"
        return Failure(fault=Fault.MEMORY, message=message[:500])
    if isinstance(error, NotSupportedError):
        return Failure(fault=Fault.UNSUPPORTED, message=str(error))
    if isinstance(error, InvalidRequestError) and error.field.startswith(_OF_THE_REQUEST):
        said = error.violations[0].description
        return Failure(fault=Fault.WORKLOAD, message=said, field=error.field)
    if isinstance(error, BadWorkloadError | InvalidRequestError):
        return Failure(fault=Fault.WORKLOAD, message=str(error))
    message = f"the workload's step raised {type(error).__name__}{said}"
    return Failure(fault=Fault.WORKLOAD, message=message[:500])
