"""A real step, measured: its peak at every boundary between blocks, its time, its tokens.

The step is the caller's, or a workload's. It is run once to settle, once under watch, and then for
its time. Computes what it always computes: a measured step trains.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from haversack import checks
from haversack.basis import Basis
from haversack.errors import InvalidRequestError, check
from haversack.observed import Observed, calibrated, certificate_of
from haversack.plan import PeakAt, Plan
from haversack.profile import Profile
from haversack.torch.allocators import CpuReader, CudaReader, Reader
from haversack.torch.blocks import detected_blocks, inner_module, named_blocks
from haversack.torch.boundaries import told
from haversack.torch.given import check_plan
from haversack.torch.loss import loss_of
from haversack.torch.measured import Measured
from haversack.torch.optimizers import forget_gradients, storage_bytes
from haversack.torch.workload import Workload


def measure(
    step: Callable[[], object] | Workload,
    *,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    plan: Plan | None = None,
    blocks: Sequence[str] | None = None,
    tokens: int | None = None,
    steps: int = 3,
) -> Measured:
    """Measure a training step on the device that the model is on.

    ``step`` runs one, optimizer and ``zero_grad`` included, and needs its ``model``; a workload
    has both. On the CPU the ``optimizer``'s state is counted if it is given. ``blocks`` are names
    of modules: without them those of the ``plan``, which is compared, not applied; else the
    children of ``ModuleList``s. ``tokens`` are those of a step, ``steps`` those that are timed.
    Raises ``InvalidRequestError``, and whatever the step raises.
    """
    check(checks.integer("steps", steps, least=1, most=10_000))
    check(checks.optional_integer("tokens", tokens, least=1))
    if plan is not None:
        check_plan(plan)
    inner = _model(step, model)
    given: tuple[Any, ...] = ()
    if isinstance(step, Workload):
        given, optimizer = (step.args, dict(step.kwargs)), step.optimizer
        step = _step_of(step)
    chosen = _blocks(inner, plan, blocks)
    reader = _reader(inner, lambda: _standing(inner, optimizer, given))
    step()  # the first one makes the optimizer's state, and fills caches
    with told(inner, chosen, reader.moved):
        reader.run(step)
    if not reader.peaks:
        raise InvalidRequestError("the step never calls the model", field="step")
    times = [_timed(step, inner) for _ in range(steps)]
    return _measured(reader, inner, plan, times, tokens)


def calibrate(profile: Profile, plan: Plan, measured: Measured) -> Profile:
    """Give the profile with the reserve that a measured step of this plan turned out to need.

    Planned with, it predicts for this plan at least what was measured; the basis is MEASURED if
    any moment was above its prediction. A peak below takes nothing from it, as the plan's
    assumptions then say. Raises InvalidRequestError for a plan of another model than the profile's.
    """
    known = {plan.model_fingerprint, profile.model_fingerprint} - {""}
    if len(known) > 1:
        raise InvalidRequestError(
            "the plan is of another model than the profile; calibrate the profile that it was made "
            "from",
            field="plan.model_fingerprint",
        )
    whole = ("the step", measured.peak_bytes, plan.predicted_peak_bytes or 0)
    return calibrated(profile, plan, measured.observed, [whole])


def _model(step: Callable[[], object] | Workload, model: nn.Module | None) -> nn.Module:
    found = step.model if isinstance(step, Workload) else model
    if found is None:
        raise InvalidRequestError(
            "a step alone does not say which model it runs; give model=", field="model"
        )
    return inner_module(found)


def _step_of(workload: Workload) -> Callable[[], object]:
    """Make the step of a training loop of the workload."""

    def step() -> None:
        run_microbatch(workload)
        run_optimizer(workload)

    return step


def run_microbatch(workload: Workload) -> None:
    """Run a workload's forward and its backward."""
    output = workload.model(*workload.args, **workload.kwargs)
    loss = loss_of(workload, output).tensor
    if workload.between_forward_and_backward is not None:
        workload.between_forward_and_backward()
    torch.autograd.backward(loss)


def run_optimizer(workload: Workload) -> None:
    """End a workload's step: the next one has no gradients, and arguments of its own."""
    if workload.optimizer is not None:
        workload.optimizer.step()
    inner_module(workload.model).zero_grad(set_to_none=True)
    forget_gradients((workload.args, dict(workload.kwargs)))


def _blocks(
    model: nn.Module, plan: Plan | None, names: Sequence[str] | None
) -> dict[str, nn.Module]:
    if names is None and plan is not None:
        names = [each.block for each in plan.actions if not each.block.startswith("(")]
    return detected_blocks(model) if names is None else named_blocks(model, names, "blocks")


def _device(model: nn.Module) -> torch.device:
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def _reader(model: nn.Module, standing_bytes: Callable[[], int]) -> Reader:
    device = _device(model)
    if device.type == "cuda":
        return CudaReader(device)
    if device.type == "cpu":
        return CpuReader(standing_bytes)
    raise InvalidRequestError(
        f"the model is on {device}, whose allocator is not read; cpu and cuda are", field="model"
    )


def _standing(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, given: tuple[Any, ...]
) -> int:
    """Add up what is there between two steps, as far as it is known."""
    parameters = list(model.parameters())
    gradients = [each.grad for each in parameters if each.grad is not None]
    state = dict(optimizer.state) if optimizer is not None else {}
    return storage_bytes([parameters, list(model.buffers()), gradients, state, given])


def _timed(step: Callable[[], object], model: nn.Module) -> int:
    device = _device(model)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start_ns = time.perf_counter_ns()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter_ns() - start_ns


def _measured(
    reader: Reader, model: nn.Module, plan: Plan | None, times: list[int], tokens: int | None
) -> Measured:
    (phase, block), peak = max(reader.peaks.items(), key=lambda each: each[1])
    step_ns = max(1, round(statistics.median(times)))
    observed = Observed(
        phase=tuple(each for each, _ in reader.peaks),
        block=tuple(each for _, each in reader.peaks),
        peak_bytes=tuple(reader.peaks.values()),
        basis=Basis.MEASURED,
        method=f"a real step, torch {torch.__version__}: {reader.method}",
    )
    return Measured(
        observed=observed,
        peak_bytes=peak,
        peak_at=PeakAt(block=block, phase=phase, moment=f"{phase} {block or 'step'}"),
        reserved_bytes=reader.reserved_bytes(),
        step_ns=step_ns,
        steps=len(times),
        tokens_per_s=None if tokens is None else tokens * 1e9 / step_ns,
        device=_name(_device(model)),
        certificate=None if plan is None else certificate_of(plan, observed),
    )


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
