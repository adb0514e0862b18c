"""The wordings of out-of-memory errors, release by release, as figures."""

import pytest

from haversack.errors import InvalidRequestError
from haversack.questions import OutOfMemory
from haversack.units import GIB, KIB, MIB
from haversack_server.estimate.oom_text import read_error

# In the wordings of c10/cuda/CUDACachingAllocator.cpp and aten/src/ATen/mps/MPSAllocator.mm.
V1_0 = (
    "CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 8.00 GiB total capacity; 6.50 GiB "
    "already allocated; 5.50 MiB free; 200.00 KiB cached)"
)
V1_13 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 16.00 GiB total "
    "capacity; 10.50 GiB already allocated; 1.25 GiB free; 12.00 GiB reserved in total by "
    "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
    "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
V2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB. GPU 3 has a "
    "total capacty of 80.00 GiB of which 9.25 GiB is free. Including non-PyTorch memory, this "
    "process has 70.50 GiB memory in use. Of the allocated memory 68.00 GiB is allocated by "
    "PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
)
V2_6 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
    "capacity of 24.00 GiB of which 100.00 MiB is free. Process 4711 has 8.00 GiB memory in use. "
    "Including non-PyTorch memory, this process has 15.00 GiB memory in use. 20.00 GiB allowed; "
    "Of the allocated memory 14.00 GiB is allocated by PyTorch, with 12.00 MiB allocated in "
    "private pools (e.g., CUDA Graphs), and 256.00 MiB is reserved by PyTorch but unallocated."
)
HIP = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 7 has a total "
    "capacity of 64.00 GiB of which 2.00 GiB is free. Of the allocated memory 60.00 GiB is "
    "allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 "
    "GB, max allowed: 18.50 GB). Tried to allocate 256.00 MB on private pool."
)
CASES = {
    V1_0: OutOfMemory(
        requested_bytes=50 * MIB,
        total_bytes=8 * GIB,
        allocated_bytes=13 * GIB // 2,
        free_bytes=11 * MIB // 2,
        unallocated_bytes=200 * KIB,
        device_index=0,
    ),
    V1_13: OutOfMemory(
        requested_bytes=2 * GIB,
        total_bytes=16 * GIB,
        allocated_bytes=21 * GIB // 2,
        free_bytes=5 * GIB // 4,
        unallocated_bytes=3 * GIB // 2,
        device_index=1,
    ),
    V2_1: OutOfMemory(
        requested_bytes=19 * GIB // 2,
        total_bytes=80 * GIB,
        free_bytes=37 * GIB // 4,
        process_bytes=141 * GIB // 2,
        allocated_bytes=68 * GIB,
        unallocated_bytes=3 * GIB // 2,
        device_index=3,
    ),
    V2_6: OutOfMemory(
        requested_bytes=512 * MIB,
        total_bytes=24 * GIB,
        free_bytes=100 * MIB,
        process_bytes=15 * GIB,
        allocated_bytes=14 * GIB,
        unallocated_bytes=256 * MIB,
        allowed_bytes=20 * GIB,
        device_index=0,
    ),
    HIP: OutOfMemory(
        requested_bytes=3 * GIB,
        total_bytes=64 * GIB,
        free_bytes=2 * GIB,
        allocated_bytes=60 * GIB,
        unallocated_bytes=GIB,
        device_index=7,
    ),
    MPS: OutOfMemory(
        requested_bytes=256 * MIB,
        allocated_bytes=17 * GIB,
        allowed_bytes=37 * GIB // 2,
    ),
}


@pytest.mark.parametrize("text", CASES, ids=["1.0", "1.13", "2.1", "2.6", "hip", "mps"])
def test_a_wording_is_read(text: str) -> None:
    assert read_error(OutOfMemory(text=text)).figures == CASES[text]


def test_a_wording_is_read_over_several_lines_of_a_log() -> None:
    log = f"step 8\n[rank3]: {V2_1}\n[rank3]: Traceback ..."
    assert read_error(OutOfMemory(text=log)).figures.requested_bytes == 19 * GIB // 2


def test_figures_that_are_given_take_precedence() -> None:
    given = OutOfMemory(text=V2_1, requested_bytes=5, total_bytes=7)
    figures = read_error(given).figures
    assert (figures.requested_bytes, figures.total_bytes) == (5, 7)
    assert figures.allocated_bytes == 68 * GIB


def test_half_of_the_last_printed_digit_is_known() -> None:
    assert read_error(OutOfMemory(text=V2_1)).half_digit_bytes == GIB // 200
    whole = OutOfMemory(text="Tried to allocate 49 GiB")
    assert read_error(whole).half_digit_bytes == GIB // 2
    assert read_error(OutOfMemory(requested_bytes=9)).half_digit_bytes == 0


@pytest.mark.parametrize("text", ["Segmentation fault", "Tried to allocate much", "9.50 GiB"])
def test_a_text_without_a_request_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="Tried to allocate") as caught:
        read_error(OutOfMemory(text=text))
    assert caught.value.field == "oom.text"
