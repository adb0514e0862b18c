"""Makes a workload ready for a run: what is held alike in every run, and where it lies.

Returns a workload on the device of the job; says in words what was changed.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils import _pytree as pytree

from haversack.torch import Workload
from haversack.verify import VerifyRequest, VerifySchedule
from haversack_server.worker import planned, rng

# Private places of torch that something stands on, and what is not seen where a version lacks one.
_PLACES: tuple[tuple[Any, str, str], ...] = (
    (
        torch.serialization,
        "_open_zipfile_writer_file",
        "files that torch.save writes outside the working folder are not seen",
    ),
    (torch._C, "_current_graph_task_id", "every region is taken to have one backward"),
)
_OF_GPUS = ("CUBLAS", "CUDA_", "CUDNN_", "NCCL_", "NVIDIA_", "PYTORCH_", "TORCH_")


def prepare(workload: Workload, request: VerifyRequest) -> tuple[Workload, tuple[str, ...]]:
    """Move the workload to its device and hold alike what a library ties to checkpointing.

    What has several devices its factory has put there. Raises BadWorkloadError where the request's
    plan is not of this model.
    """
    if request.plan is not None:
        planned.check_fits(workload, request.plan)
    device, *others = run_devices(request)
    notes = [*_without_cache(workload.model), *_without_optimizer(workload, request)]
    notes += [f"torch {torch.__version__} has no {each}" for each in _missing_places()]
    if others:
        notes.append(f"The factory chose among {len(others) + 1} GPUs itself: nothing was moved")
    elif device.type != "cpu":
        workload = _moved(workload, device)
    _forget_gradients(workload)
    return workload, tuple(notes)


def _missing_places() -> Iterator[str]:
    """Name the places that this version lacks, with what is not seen."""
    return (f"{name}: {unseen}" for owner, name, unseen in _PLACES if not hasattr(owner, name))


def run_devices(request: VerifyRequest) -> tuple[torch.device, ...]:
    """Name the devices that a run has: one, or several GPUs of one process."""
    first = torch.device(request.device or "cpu")
    if first.type == "cpu":
        return (first,)
    start = first.index or 0
    return tuple(
        torch.device(first.type, start + place) for place in range(request.device_count or 1)
    )


def pin(request: VerifyRequest) -> None:
    """Set seeds, threads and switches, as the very last thing before a step."""
    torch.set_num_threads(request.threads or 1)
    torch.use_deterministic_algorithms(request.deterministic_algorithms)
    torch.backends.cudnn.benchmark = False
    rng.seed_everything(request.seed)


def overrides(request: VerifyRequest) -> dict[str, Any]:
    """Give the settings that the request has regions take, whatever their calls say."""
    given = {
        "early_stop": request.early_stop,
        "preserve_rng_state": request.preserve_rng_state,
        "determinism_check": request.determinism_check or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def pinned(request: VerifyRequest, *, are_copies: bool = True) -> tuple[str, ...]:
    """Say what is held alike in every run; ``are_copies`` if they are of one built workload."""
    switch = "on" if request.deterministic_algorithms else "off"
    start = "is a copy of one process: the same model, arguments, closures and globals"
    return (
        f"Every run {start if are_copies else 'calls the factory, with the same seed'}",
        f"Seed {request.seed} of torch, python and numpy, set right before the step",
        f"{request.threads or 1} thread(s) for operators",
        f"torch.use_deterministic_algorithms is {switch}; cudnn.benchmark is off",
        "The hash seed of Python is 0",
        *(f"{name}={value} in every region" for name, value in overrides(request).items()),
        *(["use_reentrant=True in regions that Verify wraps"] if request.use_reentrant else []),
        f"torch {torch.__version__} and numpy {numpy.__version__} in every run",
        *(_pinned_on_gpu() if request.device.startswith("cuda") else ()),
    )


def _pinned_on_gpu() -> Iterator[str]:
    """Say which libraries, and which variables of theirs, a run on a GPU has."""
    cudnn: Any = torch.backends.cudnn  # parts of it have no types
    yield f"CUDA {torch.version.cuda} and cuDNN {cudnn.version()}"
    given = [f"{n}={value}" for n, value in sorted(os.environ.items()) if n.startswith(_OF_GPUS)]
    yield f"Variables of the environment: {', '.join(given) or 'none of a GPU'}"


def _without_cache(model: Any) -> list[str]:
    # Libraries switch the cache of keys and values off when they checkpoint; a plain run that
    # kept it would not be like for like.
    if not isinstance(model, nn.Module):
        return []
    configs = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    cached = [config for config in configs.values() if _asked(config, "use_cache") is True]
    for config in cached:
        with contextlib.suppress(Exception):  # a configuration may be frozen, or a tuple
            config.use_cache = False
    if any(_asked(config, "use_cache") is True for config in cached):
        return ["use_cache of the model's configuration could not be switched off in any run"]
    return ["use_cache of the model's configuration is off in every run"] if cached else []


def _asked(thing: Any, name: str) -> Any:
    """Give an attribute of a user's object, which may raise whatever it is asked; None then."""
    with contextlib.suppress(Exception):
        return getattr(thing, name, None)
    return None


def _without_optimizer(workload: Workload, request: VerifyRequest) -> list[str]:
    if request.schedule is VerifySchedule.TWO_STEPS and workload.optimizer is None:
        return ["The workload has no optimizer, so both steps have the same parameters"]
    return []


def _moved(workload: Workload, device: torch.device) -> Workload:
    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device == device:
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    if isinstance(workload.model, nn.Module):
        workload.model.to(device)
    args, kwargs = pytree.tree_map(move, (workload.args, dict(workload.kwargs)))
    return Workload(
        model=workload.model,
        args=args,
        kwargs=kwargs,
        loss=workload.loss,
        regions=workload.regions,
        optimizer=workload.optimizer,
        between_forward_and_backward=workload.between_forward_and_backward,
    )


def _forget_gradients(workload: Workload) -> None:
    if isinstance(workload.model, nn.Module):
        # Not by zero_grad, which models define themselves.
        for parameter in workload.model.parameters():
            parameter.grad = None
    for value in pytree.tree_leaves((workload.args, dict(workload.kwargs))):
        if isinstance(value, torch.Tensor) and value.is_leaf:
            value.grad = None
