"""The dense DPs on a CUDA device; numba-cuda is loaded by the modules that use it.

``haversack_kernels.cuda.knapsack`` and ``haversack_kernels.cuda.ceiling`` solve. A fault of the
device ends its use for the whole process, so they belong into a process of their own.
"""

from haversack_kernels.cuda.attached import Device, device
from haversack_kernels.cuda.memory import memory_needed

__all__ = ["Device", "device", "memory_needed"]
