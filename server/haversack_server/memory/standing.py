"""What stands in the allocator beside states and activations: workspaces, and the batch itself.

PyTorch takes the workspaces of matrix products through its caching allocator, so they are live
tensors to every counter; they come with the first forward and never leave.
"""

import re

from haversack.run import Device
from haversack_server.memory.blocks import Shape
from haversack_server.memory.devices import find
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.parts import INDEX_BYTES

# Compute capability 9.0 and later, by the names of the catalogue.
_FROM_HOPPER = re.compile(r"(g?h\d|g?b\d)\d+")
PER_TOKEN = 2  # ids and labels; other rows of a batch are made and dropped by the model


def workspace_bytes(profile: KernelProfile, device: Device, *, grouped: bool = False) -> int:
    """Give the workspaces of a device; those of the newest where none is named.

    ``grouped``: products of experts run as one, on several streams with a workspace each.
    """
    entry = find(device.name) if device.name else None
    if entry is not None and not _FROM_HOPPER.match(entry.name):
        return profile.workspace_bytes + grouped * profile.grouped_workspace_bytes
    return profile.workspace_hopper_bytes + grouped * profile.grouped_workspace_hopper_bytes


def batch_bytes(profile: KernelProfile, shape: Shape) -> int:
    """Give the tensors that come with a microbatch: ids, labels, and the loader's own mask."""
    mask = shape.rows * shape.seq * profile.loader_mask_bytes
    return shape.rows * INDEX_BYTES * PER_TOKEN + mask
