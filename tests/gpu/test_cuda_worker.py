"""The server's CUDA worker on a device: its answers are the CPU's, and its end costs one solve."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from tests.bench.instances import make

from haversack_kernels import cuda, dense, dispatch, slots
from haversack_kernels.errors import DeviceFailedError, SolveCancelled
from haversack_kernels.sweep import Table
from haversack_server.cuda.keeper import Keeper

DEVICE = cuda.device()
if DEVICE is None:
    pytest.skip("no CUDA device, or no numba-cuda to use it with", allow_module_level=True)

pytestmark = pytest.mark.gpu

READY_S = 300.0
LARGE = make("uncorrelated", 500, 3_000_000)[1:]


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
def keeper(counted: Counter[str]) -> Iterator[Keeper]:
    kept = Keeper(lambda outcome: counted.update([outcome]))
    kept.open()
    assert kept.settled(READY_S)
    yield kept
    kept.close()


def test_what_dispatch_gives_to_the_device_is_solved_there(keeper: Keeper) -> None:
    sizes, gains, capacity = make("circle", 1000, 1_000_000)[1:]
    gains = gains * (1 << 33) + np.arange(gains.size) % 2
    selection, why = dispatch.solve_knapsack(sizes, gains, capacity, devices=keeper.devices())
    assert why.device in ("cpu", keeper.devices()[-1].name)
    assert selection.gain == dense.solve_one(sizes, gains, capacity).gain
    _, device = keeper.devices()
    chosen = device.one(*LARGE, unit=1, cancel=None)
    assert chosen.gain == dense.solve_one(*LARGE).gain


def test_a_chain_is_planned_as_on_the_cpu(keeper: Keeper) -> None:
    random = np.random.default_rng(3)
    blocks, options = 200, 8
    retained = random.integers(0, 1000, blocks * options)
    table = Table(
        offsets=options * np.arange(blocks + 1),
        retained=retained,
        extra=(1000 - retained) * random.integers(50, 150, blocks * options),
        ceiling=random.integers(50_000, 60_000, blocks * options),
    )
    _, device = keeper.devices()
    planned, alone = device.chain(table, slots=65_536, cancel=None), slots.solve_one(table)
    assert planned is not None
    assert alone is not None
    assert planned[1] == alone[1]
    assert (planned[0] == alone[0]).all()


def test_a_cancel_flag_stops_a_solve_on_the_device(keeper: Keeper, counted: Counter[str]) -> None:
    _, device = keeper.devices()
    cancel = np.zeros(1, dtype=np.uint8)
    threading.Timer(0.05, cancel.fill, (1,)).start()
    sizes = np.arange(20_000, 28_000)
    with pytest.raises(SolveCancelled):
        device.one(sizes, sizes << 40, 100_000_000, unit=1, cancel=cancel)
    assert counted["cancelled"] == 1
    assert keeper.is_ready


def test_a_worker_that_is_killed_costs_one_solve(keeper: Keeper, counted: Counter[str]) -> None:
    _, device = keeper.devices()
    worker = keeper._worker
    assert worker is not None
    os.killpg(worker.pid, signal.SIGKILL)
    with pytest.raises(DeviceFailedError):
        device.one(*LARGE, unit=1, cancel=None)
    assert counted["lost"] == 1
    assert keeper.settled(READY_S)
    _, device = keeper.devices()
    assert device.one(*LARGE, unit=1, cancel=None).gain == dense.solve_one(*LARGE).gain
