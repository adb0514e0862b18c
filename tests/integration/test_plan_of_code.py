"""Plans for code, from end to end: a worker profiles it, and runs its planned step as a whole.

Whatever a worker does, its call ends with one sentence, and leaves no process behind.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need the extra torch")

import torch
from tests.integration.servers import eventually, served

import haversack
import haversack.torch
from haversack import (
    Basis,
    Client,
    DeadlineError,
    InvalidRequestError,
    NotSupportedError,
    Plan,
    PlanRequest,
    PlanStatus,
    read_plan,
    read_profile,
)
from haversack.cli import entry
from haversack.requests import plan_request
from haversack_server.execution import JobLimits
from haversack_server.plan.answer import plan
from haversack_server.planner import Planner
from haversack_server.service.settings import Settings

FACTORIES = """
import os
import time
import torch
from torch import nn
from haversack.torch import Workload

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(layers)
        )

    def forward(self, hidden):
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return hidden

def build(layers=3):
    model = Net(layers)
    return Workload(model, args=(torch.ones(64, 16),), loss=lambda output: output.square().mean())

def broken():
    raise RuntimeError("no weights here")

def crashing():
    os._exit(3)

def endless():
    time.sleep(3600)
"""
SAVED = 250_000  # bytes, above the peak of three layers that save everything
TIGHT = 165_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "planned_models.py").write_text(FACTORIES)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    settings = Settings(allow=("planned_models",), worker_path=(str(folder),))
    with served(settings) as running, Client(running.target) as client:
        yield client


def planner(folder: Path, deadline_s: float = 60.0) -> Planner:
    limits = JobLimits(deadline_ns=int(deadline_s * 1e9))
    return Planner(("planned_models",), (str(folder),), limits)


async def solve(request: PlanRequest) -> Plan:
    return plan(request)


def test_code_is_profiled_planned_and_certified(client: Client) -> None:
    found = client.plan(workload="planned_models:build", args={"layers": 3}, budget=SAVED)
    assert found.status is PlanStatus.OPTIMAL
    assert {action.option for action in found.actions} == {"save"}
    certificate = found.certificate
    assert certificate is not None
    assert certificate.holds
    assert not certificate.replanned
    assert certificate.observed_peak_bytes == found.predicted_peak_bytes
    assert found.basis is Basis.SIMULATED
    assert certificate.method.endswith("with AdamW")  # it has none of its own
    # The profile comes with the plan, and is planned with as often as one likes.
    assert found.profile is not None
    again = client.plan(profile=found.profile, budget=TIGHT)
    assert {action.option for action in again.actions} > {"save"}
    assert again.certificate is None
    assert again.basis is Basis.PROFILED


def test_blocks_may_be_named_and_a_wrong_name_names_its_field(client: Client) -> None:
    found = client.plan(workload="planned_models:build", blocks=["layers.0", "layers.2"])
    assert found.profile is not None
    named = [block.name for block in found.profile.blocks if block.fingerprint]
    assert named == ["layers.0", "layers.2"]
    with pytest.raises(InvalidRequestError, match="no module 'encoder'") as error:
        client.plan(workload="planned_models:build", blocks=["encoder"])
    assert error.value.field == "blocks[0]"
    with pytest.raises(NotSupportedError, match="it checkpoints its activations by itself, at"):
        client.plan(workload="conv-batchnorm")


def test_code_that_may_not_run_is_refused_before_anything_starts(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match="only planned_models may run here") as error:
        client.plan(workload="os:system", budget=TIGHT)
    assert error.value.field == "workload.entry_point"
    with pytest.raises(InvalidRequestError, match="not of the form"):
        client.plan(workload="planned_models:", budget=TIGHT)
    with pytest.raises(InvalidRequestError, match="no workload that these could be for"):
        client.plan(parameter_count=1, args={"layers": 3}, budget=TIGHT)


def test_a_factory_that_raises_is_answered_in_its_words(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match="raised RuntimeError: no weights here") as error:
        client.plan(workload="planned_models:broken", budget=TIGHT)
    assert error.value.field == "workload"


def test_the_five_lines_of_the_page_do_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan-torch.md").read_text()
    block = page.split("```python\n", 1)[1].split("```", 1)[0]
    assert len(block.splitlines()) == 5
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
    model.forward = lambda hidden: model[1](model[0](hidden))
    names = {
        "haversack": haversack,
        **{name: getattr(haversack.torch, name) for name in ("Workload", "apply", "certify")},
        "profile": haversack.torch.profile,
        "model": torch.nn.Sequential(model),
        "batch": torch.ones(8, 4),
        "loss_of": torch.sum,
        "optimizer": torch.optim.AdamW(model.parameters()),
    }
    exec(block, names)
    plan: Any = names["plan"]
    assert capsys.readouterr().out == f"{plan.predicted_peak_bytes}\n"


@pytest.mark.slow
def test_a_worker_that_crashes_ends_its_call_alone(client: Client) -> None:
    with pytest.raises(NotSupportedError, match="ended with exit code 3 before its answer"):
        client.plan(workload="planned_models:crashing", budget=TIGHT)
    assert client.plan(workload="planned_models:build", args={"layers": 1}, budget=SAVED).actions


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_at_its_deadline_and_with_its_call(folder: Path) -> None:
    endless = plan_request(workload="planned_models:endless", budget=TIGHT)

    async def main() -> None:
        short = planner(folder, deadline_s=5.0)
        with pytest.raises(NotSupportedError, match="within 5 s, and its process was killed"):
            await short.plan(endless, solve)
        assert not short.workers.running
        hanging = planner(folder)
        call = asyncio.create_task(hanging.plan(endless, solve))
        assert await asyncio.to_thread(eventually, lambda: bool(hanging.workers.running))
        (process,) = hanging.workers.running
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert process.ended.done()

    asyncio.run(main())


@pytest.mark.slow
def test_a_call_that_is_given_up_frees_the_server(client: Client) -> None:
    with pytest.raises(DeadlineError):
        client.plan(workload="planned_models:endless", budget=TIGHT, timeout=3)
    assert client.plan(workload="planned_models:build", args={"layers": 1}, budget=SAVED).actions


@pytest.mark.slow
def test_the_command_line_profiles_plans_and_writes_files(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    code = ["--workload", "planned_models:build", "--allow", "planned_models."]
    profile, planned = str(tmp_path / "profile.json"), str(tmp_path / "plan.json")
    assert entry.run(["profile", *code, "-o", profile]) == 0
    assert capfd.readouterr().out.startswith("PROFILED  3 blocks on cpu, written to")
    found = read_profile(profile)
    assert [each.name for each in found.blocks if each.fingerprint] == [
        f"layers.{place}" for place in range(3)
    ]
    assert entry.run(["plan", *code, "--budget", str(TIGHT), "-o", planned]) == 0
    shown = capfd.readouterr().out
    assert "HOLDS  the executed peak is" in shown
    answer = read_plan(planned)
    assert answer.profile == found
    assert entry.run(["plan", "--profile", planned, "--budget", str(TIGHT), "--json"]) == 0
    out = capfd.readouterr().out
    assert [each["option"] for each in json.loads(out)["actions"]] == [
        each.option for each in answer.actions
    ]
