"""Compares products of int64 exactly, in 128 bits; knows no algorithm.

A bound on a state is a fraction times a size, beyond 2^63 for bytes and nanoseconds; floats lose
its last digits from 2^53 on. Two widening multiplications cost less than the conversion to floats.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _at_least(typing: Any, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = [builder.sext(argument, ir.IntType(128)) for argument in arguments]
        left, right = builder.mul(wide[0], wide[1]), builder.mul(wide[2], wide[3])
        return builder.icmp_signed(">=", left, right)

    return types.boolean(*[types.int64] * 4), generate


at_least = cast(Callable[[int, int, int, int], bool], intrinsic(_at_least))
"""Tell whether ``a * b >= c * d``, for any four int64; only for compiled code."""
