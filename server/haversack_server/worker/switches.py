"""Switches of torch and of the process that a region may read, or leave in another position.

A replay restores autocast and a default device, and none of the rest.
"""

import decimal
import gc
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy
import torch
import torch.overrides
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_NOT_THE_USERS = ("haversack_server.worker.", "torch.utils.")
_ZOO = "haversack_server.worker.zoo"


def switches() -> dict[str, str]:
    """Spell the position of every switch, by its name."""
    backends: Any = torch.backends
    overrides: Any = torch.overrides
    return {
        "torch default dtype": str(torch.get_default_dtype()),
        "torch deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "torch float32 matmul precision": _matmul_precision(backends),
        "torch threads": str(torch.get_num_threads()),
        "torch autocast on the CPU": _autocast("cpu"),
        "torch autocast on GPUs": _autocast("cuda"),
        "torch anomaly detection": str(torch.is_anomaly_enabled()),
        "torch attention kernels": _attention(backends.cuda),
        "torch mkldnn": str(backends.mkldnn.enabled),
        "torch cudnn": str((backends.cudnn.enabled, backends.cudnn.deterministic)),
        "torch float32 precision of cudnn": ", ".join(
            f"{name} {_precision(backends.cudnn, name)}" for name in ("conv", "rnn")
        ),
        "torch function modes": _named(overrides._get_current_function_mode_stack()),
        "torch dispatch modes": _named(_get_current_dispatch_mode_stack()),
        "working folder": _folder(),
        "folders of modules": ", ".join(map(str, sys.path)),
        "collection of garbage": "on" if gc.isenabled() else "off",
        "errors of numpy": str(numpy.geterr()),
        "decimal numbers": _decimal(),
    }


def environment_since(before: Mapping[str, str]) -> dict[str, str]:
    """Spell the environment variables that are not as they were."""
    now = dict(os.environ)
    changed = sorted(n for n in now.keys() | before.keys() if now.get(n) != before.get(n))
    return {f"environment variable {name}": repr(now.get(name)) for name in changed}


def _autocast(device: str) -> str:
    return str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "off"


def _matmul_precision(backends: Any) -> str:
    """Spell the precision for all backends; where it was set for one of them, torch has none."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        names = ("cuda", "mkldnn")
        return ", ".join(f"{n} {_precision(getattr(backends, n), 'matmul')}" for n in names)


def _precision(backend: Any, operation: str) -> str:
    return str(getattr(getattr(backend, operation, None), "fp32_precision", "unknown"))


def _attention(cuda: Any) -> str:
    allowed = {
        "flash": cuda.flash_sdp_enabled(),
        "memory-efficient": cuda.mem_efficient_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return ", ".join(name for name, is_on in allowed.items() if is_on) or "none"


def _named(modes: Iterable[object]) -> str:
    kinds = [type(mode) for mode in modes]
    users = [k for k in kinds if k.__module__.startswith(_ZOO) or not _is_ours(k.__module__)]
    return ", ".join(kind.__qualname__ for kind in users) or "none"


def _is_ours(module: str) -> bool:
    return f"{module}.".startswith(_NOT_THE_USERS)


def _decimal() -> str:
    # Not its flags, which any rounded number sets.
    context = decimal.getcontext()
    traps = ", ".join(kind.__name__ for kind, is_on in context.traps.items() if is_on)
    return f"{context.prec} digits, {context.rounding}, traps: {traps or 'none'}"


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "removed"
