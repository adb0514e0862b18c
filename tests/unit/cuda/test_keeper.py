"""Faults of the CUDA worker cost one solve on the device: each is injected by a fake of it."""

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests import fake_cuda_worker
from tests.bench.instances import make

from haversack_kernels import dense, dispatch
from haversack_kernels.devices import Device
from haversack_kernels.errors import DeviceFailedError, SolveCancelled
from haversack_server.cuda.keeper import MOST_IN_A_ROW, Keeper
from haversack_server.cuda.outcomes import OUTCOMES
from haversack_server.cuda.process import Worker

READY_S = 60.0
HARD = make("multiple strongly", 200, 100_000)
COLUMNS = HARD.sizes, HARD.gains, HARD.capacity
QUICK = make("multiple strongly", 20, 1_000)  # for those that only want an answer of the worker
Keep = Callable[..., tuple[Keeper, Counter[str]]]


def fake(fault: str, folder: str = "") -> Callable[[], Worker]:
    return partial(Worker, (sys.executable, fake_cuda_worker.__file__, fault, folder))


@pytest.fixture
def keep() -> Iterator[Keep]:
    keepers = []

    def kept(
        fault: str, folder: str = "", solve_s: float = 20.0, stop_s: float = 5.0
    ) -> tuple[Keeper, Counter[str]]:
        counted: Counter[str] = Counter()
        keeper = Keeper(
            lambda outcome: counted.update([outcome]),
            fake(fault, folder),
            solve_s=solve_s,
            stop_s=stop_s,
        )
        keepers.append(keeper)
        keeper.start()
        keeper.settled(READY_S)
        return keeper, counted

    yield kept
    for keeper in keepers:
        keeper.close()


def wanted(devices: tuple[Device, ...]) -> list[Device]:
    """Make the last of the devices, which is not the CPU, by far the cheapest."""
    *others, device = devices
    assert device.name != "cpu"
    cheap = device._replace(one_ns=lambda work: 2e-9 * work.cells)
    return [each._replace(one_ns=lambda work: 0.02 * work.cells) for each in others] + [cheap]


def once_asked(folder: Path, act: Callable[[], object]) -> None:
    """Act once the worker has a question, of which its fake leaves a file."""

    def watch() -> None:
        deadline = time.monotonic() + READY_S
        while not (folder / "failed").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        act()

    threading.Thread(target=watch, daemon=True).start()


def ask(keeper: Keeper, cancel: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None) -> None:
    columns = QUICK.sizes, QUICK.gains, QUICK.capacity
    keeper.devices()[-1].one(*columns, unit=1, cancel=cancel)


def test_a_solve_that_dispatch_gives_away_is_solved_by_the_worker(keep: Keep) -> None:
    keeper, counted = keep("works")
    selection, why = dispatch.solve_knapsack(*COLUMNS, devices=wanted(keeper.devices()))
    assert (why.algorithm, why.device) == ("core, then dense", "fake that works")
    assert selection.gain == dense.solve_one(*COLUMNS).gain
    assert counted == {"solved": 1}


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("crashes", "lost", "its process was ended by SIGSEGV"),
        ("exits", "lost", "its process ended with 7"),
        ("hangs", "hung", "no answer after 0.2 s"),
        ("faults", "fault", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("lacks_memory", "memory", "too many cells"),
        ("takes_everything", "wrong", "a subset that does not fit"),
        ("lies_about_its_gain", "wrong", "or is not worth what it says"),
        ("talks_nonsense", "lost", "above the limit"),
        ("dies_inside_an_array", "wrong", "not enough values to unpack"),
    ],
)
def test_a_fault_costs_one_solve_on_the_device_which_goes_on_elsewhere(
    keep: Keep, fault: str, outcome: str, reason: str
) -> None:
    keeper, counted = keep(fault, solve_s=0.2 if fault == "hangs" else READY_S)
    selection, why = dispatch.solve_knapsack(*COLUMNS, devices=wanted(keeper.devices()))
    assert selection.proven
    assert selection.gain == dense.solve_one(*COLUMNS).gain
    assert (why.algorithm, why.device) == ("core, then dense", "cpu")
    assert why.reason.startswith(f"fake that {fault} failed (")
    assert reason in why.reason
    assert counted == {outcome: 1}
    assert outcome in OUTCOMES


def test_a_worker_that_is_killed_is_replaced(keep: Keep, tmp_path: Path) -> None:
    keeper, counted = keep("hangs", str(tmp_path))
    first = keeper._worker
    assert first is not None
    once_asked(tmp_path, partial(os.killpg, first.pid, signal.SIGKILL))
    with pytest.raises(DeviceFailedError, match="SIGKILL"):
        ask(keeper)
    assert keeper.settled(READY_S)
    assert keeper._worker is not first
    ask(keeper)
    assert counted == {"lost": 1, "solved": 1}


def test_while_a_worker_is_replaced_solves_stay_on_the_cpu(keep: Keep) -> None:
    keeper, counted = keep("faults")
    device = keeper.devices()[-1]
    with pytest.raises(DeviceFailedError):
        ask(keeper)
    keeper._device = keeper._worker = None  # whether or not the next one is ready by now
    assert [each.name for each in keeper.devices()] == ["cpu"]
    with pytest.raises(DeviceFailedError, match="being replaced"):
        device.one(*COLUMNS, unit=1, cancel=None)
    assert counted == {"fault": 1, "away": 1}


def test_a_device_that_keeps_failing_is_used_no_more(
    keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, counted = keep("faults")
    for _ in range(MOST_IN_A_ROW):
        assert keeper.settled(READY_S)
        with pytest.raises(DeviceFailedError):
            ask(keeper)
    assert not keeper.settled(READY_S)
    assert [each.name for each in keeper.devices()] == ["cpu"]
    assert counted == {"fault": MOST_IN_A_ROW}
    assert caplog.messages[-1] == "no CUDA device is used any more: it failed 3 times"


def test_a_solve_that_works_begins_the_count_of_failures_anew(keep: Keep) -> None:
    keeper, counted = keep("works")
    for _ in range(MOST_IN_A_ROW):
        assert keeper.settled(READY_S)
        ask(keeper)
        worker = keeper._worker
        assert worker is not None
        worker.end()  # so that the next solve finds it lost
        with pytest.raises(DeviceFailedError):
            ask(keeper)
    assert keeper.settled(READY_S)
    assert counted == {"solved": MOST_IN_A_ROW, "lost": MOST_IN_A_ROW}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("is_unusable", "AttributeError: module 'numpy' has no attribute 'row_stack'"),
        ("starts_badly", "its process ended with 3"),
    ],
)
def test_what_cannot_be_made_ready_is_said_once_and_not_used(
    keep: Keep, caplog: pytest.LogCaptureFixture, fault: str, words: str
) -> None:
    caplog.set_level(logging.INFO)
    keeper, counted = keep(fault)
    assert [each.name for each in keeper.devices()] == ["cpu"]
    (said,) = caplog.messages
    assert said.startswith("no CUDA device is used, because its worker ")
    assert words in said
    assert not counted


def test_a_cancel_flag_reaches_the_worker(keep: Keep, tmp_path: Path) -> None:
    keeper, counted = keep("stops_when_told", str(tmp_path), stop_s=READY_S)
    cancel = np.zeros(1, dtype=np.uint8)
    once_asked(tmp_path, partial(cancel.fill, 1))
    with pytest.raises(SolveCancelled) as cancelled:
        ask(keeper, cancel)
    assert cancelled.value.states == 12
    assert keeper.is_ready
    assert counted == {"cancelled": 1}


def test_a_worker_that_does_not_stop_when_told_is_killed(keep: Keep) -> None:
    keeper, counted = keep("hangs", stop_s=0.1)
    worker = keeper._worker
    assert worker is not None
    with pytest.raises(SolveCancelled):
        dispatch.solve_knapsack(
            *COLUMNS, devices=wanted(keeper.devices()), cancel=_set_once_it_is_asked(keeper)
        )
    assert counted == {"hung": 1}
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def _set_once_it_is_asked(keeper: Keeper) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    cancel = np.zeros(1, dtype=np.uint8)

    def watch() -> None:
        while not keeper._turn.locked():
            time.sleep(0.001)
        cancel.fill(1)

    threading.Thread(target=watch, daemon=True).start()
    return cancel


def test_who_waits_for_the_device_can_be_cancelled(keep: Keep) -> None:
    keeper, counted = keep("works")
    with keeper._turn, pytest.raises(SolveCancelled):
        ask(keeper, np.ones(1, dtype=np.uint8))
    assert not counted


def test_an_optimum_beyond_int64_is_that_of_every_device(keep: Keep) -> None:
    keeper, counted = keep("overflows")
    with pytest.raises(OverflowError, match="beyond int64"):
        ask(keeper)
    assert keeper.is_ready
    assert counted == {"solved": 1}


def test_solves_of_many_threads_take_turns(keep: Keep) -> None:
    keeper, counted = keep("works")
    hard = partial(keeper.devices()[-1].one, *COLUMNS, unit=1, cancel=None)  # so that they meet
    threads = [threading.Thread(target=hard) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == {"solved": 4}


def test_closing_ends_the_worker_and_the_solve_that_it_has(keep: Keep, tmp_path: Path) -> None:
    keeper, counted = keep("hangs", str(tmp_path))
    worker = keeper._worker
    assert worker is not None
    once_asked(tmp_path, keeper.close)
    with pytest.raises(DeviceFailedError):
        ask(keeper)
    assert counted == {"lost": 1}
    assert keeper.devices()[-1].name == "cpu"
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_a_worker_ends_when_the_server_is_gone() -> None:
    worker = fake("works")()
    worker.first_words(READY_S)
    worker._channel.close()
    assert worker._popen.wait(READY_S) == 0


def test_without_a_device_no_worker_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    started = []

    def start() -> Worker:
        started.append(1)
        return fake("works")()

    keeper = Keeper(lambda outcome: None, start)
    keeper.open()
    assert not keeper.settled(1.0)
    assert not started


def test_an_installation_that_breaks_when_asked_is_said_once_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr("haversack_kernels.cuda.device", broken)
    keeper = Keeper(lambda outcome: None, fake("works"))
    keeper.open()
    assert not keeper.settled(1.0)
    (said,) = caplog.messages
    assert said.startswith("no CUDA device is used, because looking for one failed: AttributeError")
