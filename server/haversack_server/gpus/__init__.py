"""Which GPUs of this machine jobs may have: found through NVML, chosen as CUDA would choose them.

Nothing here opens a CUDA context, loads torch or takes memory of a device.
"""
