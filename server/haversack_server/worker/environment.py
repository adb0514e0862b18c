"""Where a job really runs: versions, device, switches."""

import os
import platform
from collections.abc import Sequence

import numpy
import torch

from haversack.verify import VerifyEnvironment, VerifyRequest

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def environment(
    request: VerifyRequest, device_name: str, isolation: Sequence[str]
) -> VerifyEnvironment:
    """Describe this process."""
    return VerifyEnvironment(
        torch=torch.__version__,
        python=platform.python_version(),
        numpy=numpy.__version__,
        platform=f"{platform.system()} {platform.release()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
        device=request.device or "cpu",
        device_name=device_name,
        threads=request.threads or 1,
        deterministic_algorithms=request.deterministic_algorithms,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        executor="local",
        world_size=request.world.size if request.world else 1,
        backend=_backend(request),
        isolation=tuple(isolation),
    )


def _backend(request: VerifyRequest) -> str:
    """Name what the ranks of a job speak over; nothing where there is one process."""
    if request.world is None or request.world.size == 1:
        return ""
    return BACKENDS["cuda" if request.device.startswith("cuda") else "cpu"]


def device_name(device: torch.device) -> str:
    """Name a GPU by its model, the CPU by its kind and what its kernels use."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    kind = platform.processor() or platform.machine()
    return f"{kind}, {torch.backends.cpu.get_cpu_capability()}"
