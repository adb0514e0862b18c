"""Whether this server can run a request: what it asks for beside what its nouns already check.

Looks for torch without importing it; which devices there are is the place's to say.
"""

import importlib.util
from collections.abc import Callable, Sequence

from haversack.checks import shortly
from haversack.errors import InvalidRequestError, MissingExtraError, Violation, check
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest, VerifySchedule
from haversack.verify_ranks import check_ranks
from haversack_server.gpus.attached import GpuUnavailableError, check_devices
from haversack_server.verify.catalog import check_built_in, check_trains
from haversack_server.verify.entry_points import check_allowed
from haversack_server.verify.library import is_of_library
from haversack_server.verify.resumable import check_resumable
from haversack_server.verify.shardable import (
    check_device_count,
    check_sharded,
    devices_of,
    gpu_count,
)
from haversack_server.verify.weight_files import check_weights

_OPTIONS = ("save", "recompute")
CheckDevice = Callable[[str, int], object]


def check_admissible(
    request: VerifyRequest,
    allow: Sequence[str],
    check_device: CheckDevice | None = None,
    weights_dirs: Sequence[str] = (),
) -> None:
    """Raise the error that says why the request cannot run here.

    ``check_device`` is that of the place where it would run, asked for a device and the number of
    GPUs; this machine's if None.
    """
    if request.weights:
        check_weights(request.weights, weights_dirs)
    check_workload(request.workload, allow, "verify")
    _check_schedule(request)
    _check_plan(request)
    if request.resume is not None:
        check_trains(request.workload.name)
        _refuse_weights(request)
        check_resumable(request, request.resume)
    elif request.world is not None and request.world.size > 1:
        check_sharded(request, request.world)
    check_device_count(request)
    (check_device or check_attached)(request.device, gpu_count(request))


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


def check_attached(device: str, gpus: int = 1) -> None:
    """Raise InvalidRequestError unless this machine has as many GPUs, from ``device`` on."""
    if not device.startswith("cuda"):
        return
    try:
        check_devices(devices_of(device, gpus))
    except GpuUnavailableError as missing:
        raise InvalidRequestError(f"{missing}; cpu would do", field="device") from missing


def _check_schedule(request: VerifyRequest) -> None:
    in_thread = request.schedule is VerifySchedule.BACKWARD_IN_THREAD
    if in_thread and request.device.startswith("cuda"):
        raise InvalidRequestError(
            "a backward in a helper thread stands for a GPU on the CPU; use device cpu",
            field="schedule",
        )


def _check_plan(request: VerifyRequest) -> None:
    if request.plan is None:
        return
    options = [action.option for action in request.plan.actions]
    check([violation for place, each in enumerate(options) for violation in _unknown(place, each)])
    if set(options) <= {"save"}:
        why = "recomputes no block" if options else "has no actions, as one that is INFEASIBLE"
        raise InvalidRequestError(
            f"the plan {why}, so there is nothing to verify; plan for a budget between its floor "
            "and the peak with everything saved",
            field="plan.actions",
        )
    if request.use_reentrant:
        raise InvalidRequestError(
            "a plan is applied with the non-reentrant variant; leave it out", field="use_reentrant"
        )
    check_ranks(request.plan, request.world)


def _unknown(place: int, option: str) -> list[Violation]:
    if option in _OPTIONS or _is_selective(option):
        return []
    known = f"use {', '.join(_OPTIONS)} or selective with operations"
    sentence = f"{shortly(option)} cannot be verified; {known}"
    return [Violation(f"plan.actions[{place}].option", sentence)]


def _is_selective(option: str) -> bool:
    return option.startswith("selective ")
