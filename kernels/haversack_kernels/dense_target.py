"""What the CPU that numba compiles for does well: which type and which loads the dense DP takes."""

from functools import cache

import llvmlite.binding  # type: ignore[import-untyped]
from numba.core import config

CPU_NAME: str | None = config.CPU_NAME  # type: ignore[attr-defined]
CPU_FEATURES: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
"""What NUMBA_CPU_NAME and NUMBA_CPU_FEATURES ask for instead of the CPU at hand."""


@cache
def has_avx512() -> bool:
    """Tell whether vectors have 512 bits, and int64 a maximum of one instruction."""
    if CPU_FEATURES is not None:
        return "+avx512f" in CPU_FEATURES.split(",")
    return CPU_NAME is None and bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))


@cache
def is_zen4() -> bool:
    """Tell whether this is AMD's Zen 4 or later with AVX-512.

    There, permuting two registers is cheaper than a load across two cache lines, and storing masks
    by halves than joining them: together 8 % more cells a second in int32 and 7 % in int64. Not
    measured elsewhere, and with AVX2 masks by halves are seven times as slow.
    """
    name: str = CPU_NAME or llvmlite.binding.get_host_cpu_name()
    return name in ("znver4", "znver5") and has_avx512()
