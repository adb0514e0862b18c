"""Workspaces by device, and the tensors that come with a microbatch."""

import pytest

from haversack.run import Device
from haversack_server.memory.blocks import Shape
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.standing import batch_bytes, workspace_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("device", "expected_mib"),
    [("a100-80gb", 68), ("h100", 96), ("h200", 96), ("gb200", 96), ("l40s", 68), ("", 96)],
)
def test_a_device_from_hopper_on_has_larger_workspaces(device: str, expected_mib: int) -> None:
    found = workspace_bytes(load("megatron-te"), Device(name=device))
    assert found == expected_mib * MIB


def test_a_batch_is_ids_and_labels_and_the_loader_s_mask() -> None:
    shape = Shape(microbatch=3, seq=100)
    assert batch_bytes(load("hf-eager"), shape) == 2 * 8 * 300
    assert batch_bytes(load("megatron-te"), shape) == 2 * 8 * 300 + 3 * 100 * 100
