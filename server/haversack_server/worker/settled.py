"""What a process does on a GPU for the first time, done before its step.

cuBLAS takes a workspace from PyTorch's allocator for each thread that multiplies matrices (32 MiB
on an H200), and keeps it; handles and kernels are loaded when they are first called for. Without
this a step's memory and time would be of that. Draws no random numbers.
"""

import torch


def settle(device: torch.device) -> None:
    """Multiply matrices, forward and backward, which have a thread each; nothing on the CPU."""
    if device.type != "cuda":
        return
    with torch.inference_mode(mode=False), torch.enable_grad():  # whatever the factory left on
        given = torch.ones(8, 8, dtype=torch.float32, device=device, requires_grad=True)
        torch.autograd.backward((given @ given).sum())
    torch.cuda.synchronize(device)
