"""The step that a plan counted, made of a job's workload; and in what it is another one.

A predicted peak is one of a whole step: of its optimizer and the optimizer's state, of its inputs
and its loss. Only a step of the same is held against it. Knows no peaks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from haversack.errors import HaversackError
from haversack.plan import CountedStep
from haversack.torch import Workload
from haversack.torch.optimizers import (
    loss_in_words,
    standing_bytes,
    storage_bytes,
    with_optimizer,
)
from haversack.units import format_bytes

_UNSAID = (
    "the plan does not say what its step consists of: it is of a described model, or was made by "
    "an earlier version"
)


@dataclass(frozen=True, slots=True)
class SameStep:
    """A workload to be stepped, with the optimizer that was counted; and what differs."""

    workload: Workload
    differences: tuple[str, ...] = ()


def same_step(workload: Workload, counted: CountedStep | None) -> SameStep:
    """Make the step that was counted, as far as that can be."""
    if counted is None:
        return SameStep(workload, (_UNSAID,))
    found = list(_differences(workload, counted))
    if not counted.optimizer:
        return SameStep(workload, (*found, *_of_own_optimizer(workload, counted)))
    try:
        return SameStep(with_optimizer(workload, counted.optimizer), tuple(found))
    except HaversackError as refused:
        return SameStep(workload, (*found, str(refused)))


def _differences(workload: Workload, counted: CountedStep) -> Iterator[str]:
    if counted.microbatches > 1:
        yield (
            f"the plan counts {counted.microbatches} microbatches before an optimizer's step, and "
            "steps of one were measured"
        )
    model = workload.model
    if isinstance(model, nn.Module):
        here = standing_bytes(workload, model)
        if here != counted.standing_bytes:
            yield (
                f"inputs and buffers are {format_bytes(here)} here, and the plan counts "
                f"{format_bytes(counted.standing_bytes)}: give the arguments that were planned for"
            )
    loss = loss_in_words(workload)
    if counted.loss and loss != counted.loss:
        yield f"the loss is {loss} here, and the plan counts {counted.loss}"


def _of_own_optimizer(workload: Workload, counted: CountedStep) -> Iterator[str]:
    here = "" if workload.optimizer is None else type(workload.optimizer).__name__
    if here != counted.optimizer_class:
        yield (
            f"the plan counts the workload's own optimizer, {_named(counted.optimizer_class)}, and "
            f"the workload has {_named(here)} here"
        )


def _named(kind: str) -> str:
    return kind or "none"


def after_steps(workload: Workload, counted: CountedStep | None) -> Iterator[str]:
    """Say what differs that is seen once steps have run: the optimizer's state."""
    if counted is None:
        return
    optimizer = workload.optimizer
    if optimizer is not None and type(optimizer).__name__ == counted.optimizer_class:
        here = storage_bytes(dict(optimizer.state))
        if here != counted.optimizer_state_bytes:
            yield (
                f"the optimizer's state is {format_bytes(here)} here, and the plan counts "
                f"{format_bytes(counted.optimizer_state_bytes)}"
            )


def optimizer_in_words(workload: Workload, counted: CountedStep | None) -> str:
    """Say which optimizer was stepped, and whose it is."""
    if workload.optimizer is None:
        return "no optimizer"
    given = counted is not None and bool(counted.optimizer)
    whose = "that the plan counts" if given else "that the workload brings"
    return f"the {type(workload.optimizer).__name__} {whose}, with its state"


def device_in_words(counted: CountedStep | None, device: str) -> str:
    """Say that a plan was profiled elsewhere, which is compared nevertheless; else nothing.

    It is the same step, and to know what it takes on this device is what it is measured for.
    """
    if counted is None or counted.device == device:
        return ""
    return f"; the plan was profiled on {counted.device}, whose kernels may keep other tensors"


def untimed(counted: CountedStep | None, device: str) -> Iterator[str]:
    """Say why the time of recomputation is not compared; nothing where it can be."""
    if counted is None:
        yield _UNSAID
    elif not counted.timed_on:
        yield "the plan's times are a roofline's, and nothing was timed for it"
    elif counted.timed_on != device:
        yield f"the plan's times are of {counted.timed_on}, and measured was on {device}"
    elif device == "cpu":
        yield "both are of a CPU, which has no name by which two machines could be told apart"
