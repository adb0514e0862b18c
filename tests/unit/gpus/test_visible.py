"""CUDA_VISIBLE_DEVICES as CUDA reads it, on four GPUs, the last of which is two MIG instances."""

import pytest

from haversack_server.gpus.nvml import Gpu
from haversack_server.gpus.visible import visible

UUIDS = ("GPU-aa10", "GPU-aa22", "GPU-bb33")
GPUS = [
    *(Gpu(cuda_name=uuid, index=index, uuid=uuid) for index, uuid in enumerate(UUIDS)),
    *(
        Gpu(cuda_name=uuid, index=3, uuid=uuid, parent_uuid="GPU-cc44")
        for uuid in ("MIG-d1", "MIG-d2")
    ),
]
ALL = "GPU-aa10 GPU-aa22 GPU-bb33 MIG-d1 MIG-d2"


@pytest.mark.parametrize(
    ("allowed", "chosen"),
    [
        (None, ALL),
        ("", ""),
        ("-1", ""),
        ("2,0", "GPU-bb33 GPU-aa10"),
        (" 1 , 2 ", "GPU-aa22 GPU-bb33"),
        ("1,-1,2", "GPU-aa22"),
        ("GPU-bb", "GPU-bb33"),
        ("GPU-bb33,0", "GPU-bb33 GPU-aa10"),
        ("MIG-d2", "MIG-d2"),
        ("3", "MIG-d1 MIG-d2"),
        ("GPU-cc", "MIG-d1 MIG-d2"),
        ("MIG-d1,3", ""),
    ],
)
def test_what_is_visible_keeps_the_order_it_is_named_in(allowed: str | None, chosen: str) -> None:
    assert [gpu.uuid for gpu in visible(GPUS, allowed).gpus] == chosen.split()


@pytest.mark.parametrize("name", ["4", "GPU-aa", "GPU-", "MIG-d", "GPU-ee", "all"])
def test_a_name_of_none_or_of_several_ends_the_list_and_is_said(name: str) -> None:
    found = visible(GPUS, f"0,{name},1")
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-aa10"]
    (sentence,) = found.said
    assert f"CUDA_VISIBLE_DEVICES has {name}, which names no GPU" in sentence


def test_minus_one_is_meant() -> None:
    assert visible(GPUS, "0,-1").said == ()


def test_a_gpu_that_is_named_twice_leaves_none_and_is_said() -> None:
    found = visible(GPUS, "0,GPU-aa10")
    assert found.gpus == ()
    assert found.said == ("CUDA_VISIBLE_DEVICES=0,GPU-aa10 names a GPU twice, which leaves none",)
