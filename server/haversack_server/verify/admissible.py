"""Whether this server can run a request: what it asks for beside what its nouns already check.

Looks for torch and for GPUs without importing either.
"""

import importlib.util
import os
import pathlib
import re
from collections.abc import Callable, Sequence

from haversack.errors import InvalidRequestError, MissingExtraError, NotSupportedError
from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest, VerifySchedule
from haversack_server.verify.catalog import check_built_in
from haversack_server.verify.entry_points import check_allowed
from haversack_server.verify.library import is_of_library
from haversack_server.verify.resumable import check_resumable
from haversack_server.verify.shardable import check_sharded
from haversack_server.verify.weight_files import check_weights

DEVICE_FILES = pathlib.Path("/dev")
_GPU_FILE = re.compile(r"nvidia(\d+)")
_OPTIONS = ("save", "recompute")


def check_admissible(
    request: VerifyRequest,
    allow: Sequence[str],
    check_device: Callable[[str], object] | None = None,
    weights_dirs: Sequence[str] = (),
) -> None:
    """Raise the error that says why the request cannot run here.

    ``check_device`` is that of the place where it would run; this machine's if None.
    """
    if request.weights:
        check_weights(request.weights, weights_dirs)
    check_workload(request.workload, allow, "verify")
    check_device = check_device or check_attached
    _check_device(request, check_device)
    _check_plan(request)
    if request.resume is not None:
        _refuse_weights(request)
        check_resumable(request, request.resume)
    elif request.world is not None and request.world.size > 1:
        check_sharded(request, request.world, check_device)


def _refuse_weights(request: VerifyRequest) -> None:
    if request.weights:
        raise InvalidRequestError(
            "a resume job trains what its factory makes; leave it out", field="weights"
        )


def check_workload(workload: WorkloadReference, allow: Sequence[str], verb: str) -> None:
    """Raise the error that says why a workload cannot run here; ``verb`` is what for."""
    if workload.name:
        check_built_in(workload.name, workload.args_json)
    else:
        check_allowed(workload.entry_point, allow, field="workload.entry_point")
    _check_packages(workload.name, verb)


def _check_packages(name: str, verb: str) -> None:
    needed = {"torch": "torch", "numpy": "torch"}
    if is_of_library(name):
        needed["transformers"] = "zoo"
    for package, extra in needed.items():
        if importlib.util.find_spec(package) is None:
            extras = ",".join(dict.fromkeys(("server", "torch", extra)))
            raise MissingExtraError(
                f"{verb} needs {package} where its jobs run: pip install 'haversack[{extras}]'"
            )


def check_attached(device: str) -> None:
    """Raise InvalidRequestError for a GPU that is not attached to this machine."""
    if not device.startswith("cuda"):
        return
    if gpu_of(device) is None:
        have = ", ".join(f"cuda:{index}" for index in range(len(attached_gpus()))) or "no GPU"
        raise InvalidRequestError(
            f"{device} is not attached to this server, which has {have}; cpu would do",
            field="device",
        )


def _check_device(request: VerifyRequest, check_device: Callable[[str], object]) -> None:
    check_device(request.device)
    if not request.device.startswith("cuda"):
        return
    if request.schedule is VerifySchedule.BACKWARD_IN_THREAD:
        raise InvalidRequestError(
            "a backward in a helper thread stands for a GPU on the CPU; use device cpu",
            field="schedule",
        )


def gpu_of(device: str) -> str | None:
    """Give what CUDA calls a device such as ``cuda:1``; None where it is not attached."""
    index, attached = int(device.partition(":")[2]), attached_gpus()
    return attached[index] if index < len(attached) else None


def attached_gpus() -> list[str]:
    """List the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    names = [file.name for file in DEVICE_FILES.glob("nvidia*")]
    indices = sorted(int(match[1]) for name in names if (match := _GPU_FILE.fullmatch(name)))
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not indices or allowed is None:
        return [str(index) for index in indices]
    return [name.strip() for name in allowed.split(",") if name.strip()]


def _check_plan(request: VerifyRequest) -> None:
    if request.plan is None:
        return
    options = {action.option for action in request.plan.actions}
    unknown = sorted(each for each in options if each not in _OPTIONS and not _is_selective(each))
    if unknown:
        raise NotSupportedError(
            f"option {unknown[0][:60]!r} of a plan cannot be verified; use {', '.join(_OPTIONS)} "
            "or selective with operations"
        )
    world = request.world
    is_divided = world is not None and world.sharding is Sharding.FSDP2 and world.size > 1
    if is_divided and any(action.segment for action in request.plan.actions):
        raise NotSupportedError(
            "a plan with segments cannot be verified under FSDP2: a segment would run before its "
            "weights are gathered; plan without segments, or take DDP"
        )
    if options <= {"save"}:
        raise InvalidRequestError(
            "the plan recomputes no block, so there is nothing to verify", field="plan.actions"
        )
    if request.use_reentrant:
        raise InvalidRequestError(
            "a plan is applied with the non-reentrant variant; leave it out", field="use_reentrant"
        )


def _is_selective(option: str) -> bool:
    return option.startswith("selective ")
