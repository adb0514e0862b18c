"""Autocast: which numbers a run under ``torch.autocast`` computes in, beside those it keeps.

Parameters, norms and the residual stream stay in fp32. A matrix product takes copies of both its
operands in a type of 2 bytes: autocast keeps the copy of a weight until its context ends, and makes
one of an activation for every product that reads it. A sum or a product of both types is in fp32.
Measured op by op (torch 2.13.0 CPU, transformers 5.24; docs/autocast.md has the list); CUDA runs
more kernels in fp32 (``widens``: pytorch, aten/src/ATen/autocast_mode.h, AT_FORALL_FP32). Knows no
kernels itself: the tape builder makes the copies.
"""

from dataclasses import dataclass

PRODUCT_BYTES = 2  # bf16 and fp16


@dataclass(frozen=True, slots=True)
class Autocast:
    """The bytes of a number in matrix products; ``widens`` if powers and softmax are in fp32."""

    product_bytes: int = PRODUCT_BYTES
    widens: bool = False
