"""What a benchmark ran on: every table starts with it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "numba", "llvmlite", "torch", "ortools", "scipy")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def describe() -> dict[str, str]:
    """Return CPU, cores, caches and versions by name."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "caches": _caches(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def heading(described: dict[str, str]) -> str:
    """Return ``describe()`` as lines to print."""
    return "\n".join(f"{name:>9}: {value}" for name, value in described.items())


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _caches() -> str:
    levels = sorted(CACHES.glob("index*"))
    texts = [[(level / name).read_text().strip() for name in ("level", "size")] for level in levels]
    return ", ".join(f"L{level} {size}" for level, size in texts) or "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
