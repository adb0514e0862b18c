"""Hand-overs of a request's solve, through the real server: to dense cells, to slots, to CUDA."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import fake_cuda_worker
from tests.bench.instances import make
from tests.integration.servers import PATIENCE_S, eventually, metric, past_a_deadline, served

import haversack
from haversack import Client, Plan, PlanStatus
from haversack_kernels import dense, dispatch
from haversack_kernels.devices import Device
from haversack_server.cuda import device as cuda_device
from haversack_server.cuda import keeper as cuda_keeper
from haversack_server.cuda.process import Worker
from haversack_server.service.app import Running
from haversack_server.service.rooms import Rooms
from haversack_server.service.settings import Settings

MODEL = Path(__file__).parents[2] / "examples/llama3_8b.json"
HARD = make("circle", 200, 100_000)
OPTIMUM = dense.solve_one(*HARD[1:]).gain
CUDA = Settings(cuda=True, metrics_port=0, solver_threads=2)


def hard_plan(client: Client, **more: Any) -> Plan:
    return client.plan(
        candidates={"size_bytes": HARD.sizes.tolist(), "gain": HARD.gains.tolist()},
        budget=HARD.capacity,
        frontier_points=0,
        **more,
    )


def is_right(answer: Plan) -> bool:
    sizes = sum(int(HARD.sizes[index]) for index in answer.saved)
    gains = sum(int(HARD.gains[index]) for index in answer.saved)
    is_best = answer.total_gain == gains == OPTIMUM and answer.gap == 0
    return is_best and answer.status is PlanStatus.OPTIMAL and sizes <= HARD.capacity


def model_plan(client: Client, **more: Any) -> Plan:
    return client.plan(
        model=MODEL, gpus=8, zero=3, seq=8192, microbatch=2, budget="60GiB", fit_expected=True,
        frontier_points=0, **more,
    )  # fmt: skip


def test_a_hard_request_is_handed_over_to_dense_cells() -> None:
    with served() as running, haversack.connect(running.target) as client:
        answer = hard_plan(client)
    assert is_right(answer)
    assert answer.solver == "knapsack core, then dense"
    assert answer.solved_by is not None
    assert answer.solved_by.algorithm == "core, then dense"
    assert (answer.solved_by.cells, answer.solved_by.device) == ("int32", "cpu")
    assert "then come int32 cells on cpu" in answer.solved_by.reason


def test_an_easy_request_says_that_bounds_proved_it() -> None:
    with served() as running, haversack.connect(running.target) as client:
        answer = client.plan(candidates={"size_bytes": [3, 2, 2], "gain": [5, 3, 3]}, budget=4)
        of_model = model_plan(client)
    assert answer.solved_by is not None
    assert answer.solved_by.algorithm == "core"
    assert answer.solved_by.reason == "proven by bounds"
    assert of_model.solved_by is not None
    assert of_model.solved_by.algorithm == "lists"
    assert of_model.solver == "ceiling dynamic programme, Pareto lists"


def quick() -> tuple[Device, ...]:
    """Believe that slots cost nothing, so that lists which stop soon are followed by them."""
    return (dispatch.CPU._replace(chain_ns=lambda work: 1.0),)


def test_lists_that_stop_are_followed_by_slots_with_a_certified_gap() -> None:
    rooms = Rooms.solving_on(quick)
    with served(rooms=rooms) as running, haversack.connect(running.target) as client:
        exact, answer = model_plan(client), model_plan(client, state_limit=1)
    assert exact.status is PlanStatus.OPTIMAL
    assert answer.solved_by is not None
    assert answer.solved_by.algorithm == "lists, then slots"
    assert answer.solver == "ceiling dynamic programme, Pareto lists, then slots"
    assert "slots on cpu" in answer.solved_by.reason
    assert answer.status is PlanStatus.FEASIBLE
    assert answer.gap == answer.extra_ns - answer.lower_bound > 0
    assert answer.lower_bound <= exact.extra_ns <= answer.extra_ns
    assert answer.predicted_peak_bytes is not None
    assert answer.budget is not None
    assert answer.predicted_peak_bytes <= answer.budget.allocated_bytes


@pytest.fixture
def with_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """Serve with a device attached whose worker is a fake with this fault, and far the cheapest."""

    def serve(fault: str, folder: str = "") -> Any:
        command = (sys.executable, fake_cuda_worker.__file__, fault, folder)
        patience_s = 1.0 if fault == "hangs" else float(PATIENCE_S)
        keeper = partial(cuda_keeper.Keeper, start=partial(Worker, command), solve_s=patience_s)
        monkeypatch.setattr(cuda_keeper, "Keeper", keeper)
        monkeypatch.setattr("haversack_kernels.cuda.device", lambda: "a card")
        monkeypatch.setattr(cuda_device, "cuda_one_ns", lambda work: 1.0)
        return served(CUDA)

    return serve


def is_ready(running: Running) -> bool:
    return metric(running, "haversack_cuda_ready") == 1


def ended(running: Running, outcome: str) -> float:
    return metric(running, f'haversack_cuda_solves_total{{outcome="{outcome}"}}')


def test_a_device_that_is_attached_solves_what_dispatch_gives_it(
    with_worker: Callable[..., Any],
) -> None:
    with with_worker("works") as running, haversack.connect(running.target) as client:
        assert eventually(lambda: is_ready(running))
        answer = hard_plan(client)
        assert ended(running, "solved") == 1
    assert is_right(answer)
    assert answer.solved_by is not None
    assert answer.solved_by.device == "fake that works"
    assert "fake that works, 0.0 ms (cpu: " in answer.solved_by.reason


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("crashes", "lost"),
        ("hangs", "hung"),
        ("faults", "fault"),
        ("lacks_memory", "memory"),
        ("takes_everything", "wrong"),
    ],
)
def test_a_fault_of_the_device_costs_one_answer_which_says_so_and_is_counted(
    with_worker: Callable[..., Any], fault: str, outcome: str
) -> None:
    with with_worker(fault) as running, haversack.connect(running.target) as client:
        assert eventually(lambda: is_ready(running))
        answer = hard_plan(client)
        assert ended(running, outcome) == 1
        after = client.plan(candidates={"size_bytes": [3, 2, 2], "gain": [5, 3, 3]}, budget=4)
    assert is_right(answer)
    assert answer.solved_by is not None
    assert (answer.solved_by.algorithm, answer.solved_by.device) == ("core, then dense", "cpu")
    assert answer.solved_by.reason.startswith(f"fake that {fault} failed (")
    assert after.total_gain == 6


def test_after_a_crash_the_next_worker_takes_over(
    with_worker: Callable[..., Any], tmp_path: Path
) -> None:
    with (
        with_worker("crashes", str(tmp_path)) as running,
        haversack.connect(running.target) as client,
    ):
        assert eventually(lambda: is_ready(running))
        first = hard_plan(client)
        assert eventually(lambda: is_ready(running))
        second = hard_plan(client)
        assert (ended(running, "lost"), ended(running, "solved")) == (1, 1)
    assert is_right(first)
    assert is_right(second)
    assert first.solved_by is not None
    assert second.solved_by is not None
    assert (first.solved_by.device, second.solved_by.device) == ("cpu", "fake that crashes")


def test_a_deadline_reaches_the_worker(with_worker: Callable[..., Any]) -> None:
    with (
        with_worker("stops_when_told") as running,
        haversack.connect(running.target) as client,
    ):
        assert eventually(lambda: is_ready(running))
        past_a_deadline(
            lambda timeout_s: hard_plan(client, timeout=timeout_s),
            lambda: ended(running, "cancelled") >= 1,
        )


def test_a_worker_that_is_killed_costs_one_answer(
    with_worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Worker] = []
    ask = Worker.ask

    def noted(self: Worker, *arguments: Any) -> Any:
        asked.append(self)
        threading.Timer(0.1, os.killpg, (self.pid, signal.SIGKILL)).start()
        return ask(self, *arguments)

    monkeypatch.setattr(Worker, "ask", noted)
    # One that never ends by itself, for which the server waits as long as the tests do.
    with with_worker("stops_when_told") as running, haversack.connect(running.target) as client:
        assert eventually(lambda: is_ready(running))
        answer = hard_plan(client)
        assert ended(running, "lost") == 1
    assert len(asked) == 1
    assert is_right(answer)
    assert answer.solved_by is not None
    assert "was ended by SIGKILL" in answer.solved_by.reason


def test_without_a_device_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haversack_kernels.cuda.device", lambda: None)
    with served(CUDA) as running, haversack.connect(running.target) as client:
        answer = hard_plan(client)
        assert not is_ready(running)
    assert answer.solved_by is not None
    assert answer.solved_by.device == "cpu"
