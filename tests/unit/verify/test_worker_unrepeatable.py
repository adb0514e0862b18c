"""What is heard of a step that asks what no seed repeats, and what is not."""

import cProfile
import datetime
import os
import pathlib
import random
import threading
import time
import uuid
from collections.abc import Callable
from time import perf_counter_ns as imported_by_name
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker.unrepeatable import Unrepeatable, unheard  # noqa: E402


def reads(path: str | pathlib.Path) -> int:
    with open(path, "rb", buffering=0) as entropy:
        return len(entropy.read(1))


class Moment(datetime.datetime):
    """A moment that prints otherwise."""


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (time.time, "time.time"),
        (lambda: imported_by_name(), "time.perf_counter_ns"),
        (uuid.uuid4, "os.urandom"),
        (lambda: datetime.datetime.now(), "datetime.now"),
        (lambda: os.getpid(), "os.getpid"),
        (lambda: time.clock_gettime(time.CLOCK_REALTIME), "time.clock_gettime"),
        (lambda: time.strftime("%H"), "time.strftime"),
        (lambda: datetime.datetime.today(), "datetime.today"),
        (lambda: datetime.date.today(), "date.today"),
        (lambda: Moment.now(), "datetime.now"),
        (lambda: random.Random(), "random.seed"),
        (lambda: torch.Generator().seed(), "torch.Generator.seed"),
        (lambda: torch.default_generator.seed(), "torch.Generator.seed"),
        (lambda: reads("/dev/urandom"), "/dev/urandom"),
        (lambda: reads(pathlib.Path("/dev/random")), "/dev/random"),
    ],
)
def test_what_is_asked_is_heard_however_it_is_named(ask: Callable[[], object], name: str) -> None:
    with Unrepeatable() as heard:
        ask()
    assert heard.asked == (name,)


def test_a_seed_that_is_given_repeats() -> None:
    with Unrepeatable() as heard:
        random.Random(5)
        torch.Generator().manual_seed(5)
    assert heard.asked == ()


def test_seeding_of_all_generators_is_heard_in_the_code_of_torch() -> None:
    state = torch.get_rng_state()
    with Unrepeatable() as heard:
        torch.seed()
    torch.set_rng_state(state)
    assert "torch.Generator.seed" in heard.asked


def test_no_property_of_the_users_is_run() -> None:
    def raising(_: object) -> type:
        raise RuntimeError("asked for its class")

    log: Any = type("Log", (list,), {"__class__": property(raising)})()
    with Unrepeatable() as heard:
        log.append(1)
    assert (len(log), heard.asked) == (1, ())


def test_a_profiler_of_the_users_stays_while_probes_look() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    with unheard():
        time.time()
    profiler.disable()
    assert any("time.time" in str(entry.code) for entry in profiler.getstats())


def test_probes_are_not_heard_and_the_step_is_again_after_them() -> None:
    with Unrepeatable() as heard:
        with unheard():
            time.time()
        before = heard.asked
        time.time()
    assert (before, heard.asked) == ((), ("time.time",))


def test_other_threads_are_heard_and_nothing_is_afterwards() -> None:
    with Unrepeatable() as heard:
        thread = threading.Thread(target=time.time)
        thread.start()
        thread.join()
        sorted([2, 1])
    time.monotonic()
    assert heard.asked == ("time.time",)
