"""Whether this server can run a request: what it asks for beside what its nouns already check.

Looks for torch and for GPUs without importing either.
"""

import importlib.util
import pathlib
import re
from collections.abc import Sequence

from haversack.errors import InvalidRequestError, MissingExtraError, NotSupportedError
from haversack.verify import VerifyRequest, VerifySchedule
from haversack_server.verify.catalog import check_known
from haversack_server.verify.entry_points import check_allowed

_GPU_FILE = re.compile(r"nvidia(\d+)")
_OPTIONS = ("save", "recompute")


def check_admissible(request: VerifyRequest, allow: Sequence[str]) -> None:
    """Raise the error that says why the request cannot run here."""
    workload = request.workload
    if workload.name:
        check_known(workload.name, field="workload.name")
    else:
        check_allowed(workload.entry_point, allow, field="workload.entry_point")
    _check_torch()
    _check_device(request)
    _check_plan(request)
    if request.world is not None and request.world.size > 1:
        raise NotSupportedError(
            f"a world of {request.world.size} ranks cannot be verified yet; leave world out for "
            "one process"
        )


def _check_torch() -> None:
    for package in ("torch", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(
                f"verify needs {package} where its jobs run: pip install 'haversack[server,torch]'"
            )


def _check_device(request: VerifyRequest) -> None:
    if not request.device.startswith("cuda"):
        return
    index, attached = gpu_index(request.device), attached_gpus()
    if index not in attached:
        have = ", ".join(f"cuda:{each}" for each in attached) or "no GPU"
        raise InvalidRequestError(
            f"{request.device} is not attached to this server, which has {have}; cpu would do",
            field="device",
        )
    if request.schedule is VerifySchedule.BACKWARD_IN_THREAD:
        raise InvalidRequestError(
            "a backward in a helper thread stands for a GPU on the CPU; use device cpu",
            field="schedule",
        )


def gpu_index(device: str) -> int:
    """Read the index of a device such as ``cuda:1``."""
    return int(device.partition(":")[2])


def attached_gpus() -> list[int]:
    """List the indices of the GPUs whose device files are there."""
    names = [file.name for file in pathlib.Path("/dev").glob("nvidia*")]
    return sorted(int(match[1]) for name in names if (match := _GPU_FILE.fullmatch(name)))


def _check_plan(request: VerifyRequest) -> None:
    if request.plan is None:
        return
    options = {action.option for action in request.plan.actions}
    unknown = sorted(options - set(_OPTIONS))
    if unknown:
        raise NotSupportedError(
            f"option {unknown[0]!r} of a plan cannot be verified yet; use {' or '.join(_OPTIONS)}"
        )
    if "recompute" not in options:
        raise InvalidRequestError(
            "the plan recomputes no block, so there is nothing to verify", field="plan.actions"
        )
