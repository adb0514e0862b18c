"""The real worker in its own process, its kernels in numba's CUDA simulator: small problems."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haversack_kernels import dense, dispatch, phases, slots
from haversack_kernels.errors import SolveCancelled
from haversack_kernels.sweep import Table
from haversack_server.cuda.keeper import Keeper
from haversack_server.cuda.process import Worker

READY_S = 120.0
RANDOM = np.random.default_rng(5)
SIZES, GAINS = RANDOM.integers(1, 60, 12), RANDOM.integers(1, 1000, 12)
BLOCKS, OPTIONS = 6, 3
CHAIN = Table(
    offsets=OPTIONS * np.arange(BLOCKS + 1),
    retained=RANDOM.integers(0, 40, BLOCKS * OPTIONS),
    extra=RANDOM.integers(0, 100, BLOCKS * OPTIONS),
    ceiling=RANDOM.integers(60, 120, BLOCKS * OPTIONS),
)


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
def keeper(counted: Counter[str]) -> Iterator[Keeper]:
    start = partial(Worker, environment={"NUMBA_ENABLE_CUDASIM": "1"})
    kept = Keeper(lambda outcome: counted.update([outcome]), start, solve_s=READY_S, stop_s=READY_S)
    kept.start()
    assert kept.settled(READY_S)
    yield kept
    kept.close()


def test_what_dispatch_gives_away_is_solved_in_the_worker(
    keeper: Keeper, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("QUICK", "QUICK_PER_RUN"):  # no quick look: such a small problem needs no more
        monkeypatch.setattr(phases, limit, 0)
    *_, device = keeper.devices()
    before, capacity = counted["solved"], int(SIZES.sum()) // 2
    devices = [dispatch.CPU, device._replace(one_ns=lambda work: 1.0)]
    selection, why = dispatch.solve_knapsack(SIZES, GAINS, capacity, devices=devices)
    assert (why.algorithm, why.cells, why.device) == ("core, then dense", "int32", device.name)
    assert selection.proven
    assert selection.gain == dense.solve_one(SIZES, GAINS, capacity).gain
    assert counted["solved"] == before + 1


@pytest.mark.parametrize("capacity", [0, 1, 150, 10_000])
def test_a_knapsack_is_solved_as_on_the_cpu(keeper: Keeper, capacity: int) -> None:
    *_, device = keeper.devices()
    chosen = device.one(SIZES, GAINS, capacity, unit=1, cancel=None)
    assert device.name == "numba's CUDA simulator"
    assert chosen.gain == dense.solve_one(SIZES, GAINS, capacity).gain
    assert GAINS[chosen.mask].sum() == chosen.gain
    assert SIZES[chosen.mask].sum() <= capacity


def test_an_optimum_beyond_int64_is_refused(keeper: Keeper) -> None:
    *_, device = keeper.devices()
    large = np.array([2**62, 2**62, 2**62])
    with pytest.raises(OverflowError):
        device.one(np.array([1, 1, 2]), large, 3, unit=1, cancel=None)


@pytest.mark.parametrize("count", [20, 1000])
def test_a_chain_is_planned_as_on_the_cpu(keeper: Keeper, count: int) -> None:
    *_, device = keeper.devices()
    planned = device.chain(CHAIN, slots=count, cancel=None)
    alone = slots.solve_one(CHAIN, slots=count)
    assert planned is not None
    assert alone is not None
    assert planned[1] == alone[1]
    assert (planned[0] == alone[0]).all()


def test_a_chain_without_a_plan_has_none(keeper: Keeper) -> None:
    *_, device = keeper.devices()
    full = CHAIN._replace(retained=CHAIN.retained + 100, ceiling=CHAIN.ceiling * 0)
    assert device.chain(full, slots=100, cancel=None) is None


def test_a_cancel_flag_stops_a_solve_in_the_worker(
    keeper: Keeper, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, device = keeper.devices()
    before, cancel = counted["cancelled"], np.zeros(1, dtype=np.uint8)
    wait = Worker._wait

    def cancelled_soon(worker: Worker, *how: Any) -> None:  # the question is sent by then
        threading.Timer(0.5, cancel.fill, (1,)).start()
        wait(worker, *how)

    monkeypatch.setattr(Worker, "_wait", cancelled_soon)
    many = np.tile(SIZES, 40)
    with pytest.raises(SolveCancelled):
        device.one(many, np.tile(GAINS, 40) + np.arange(many.size), 6_000, unit=1, cancel=cancel)
    assert counted["cancelled"] == before + 1
    assert keeper.is_ready


def test_the_worker_loads_neither_torch_nor_grpc(keeper: Keeper) -> None:
    worker = keeper._worker
    assert worker is not None
    mapped = Path(f"/proc/{worker.pid}/maps").read_text()
    assert "llvmlite" in mapped
    assert "torch" not in mapped
    assert "grpc" not in mapped


def test_without_a_device_the_worker_says_what_is_missing() -> None:
    worker = Worker(environment={"CUDA_VISIBLE_DEVICES": "", "NUMBA_ENABLE_CUDASIM": "0"})
    said = worker.first_words(READY_S)
    worker.end()
    assert said["error"] == "unusable"
    assert said["reason"].startswith("NoDeviceError: ")


def test_the_worker_ends_when_the_server_is_gone_whatever_it_does(keeper: Keeper) -> None:
    worker = keeper._worker
    assert worker is not None
    worker._channel.shutdown(2)
    assert worker._popen.wait(READY_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)
