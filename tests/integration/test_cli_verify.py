"""`haversack verify` with the real server, its zygote and job processes, as people type it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.programs import started

from haversack.cli import entry

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60  # how long a process may take; never how long it does take

pytest.importorskip("torch", reason="jobs need the extra torch")

FACTORY = """
import torch
from haversack.torch import Workload

def build(layers):
    stack = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(layers)]
    model = torch.nn.Sequential(*stack)
    return Workload(model, args=(torch.ones(2, 4),), regions=[str(each) for each in range(layers)])

def broken():
    raise RuntimeError("no weights here")

def endless():
    import time
    while True:
        time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a package of the caller's."""
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "__init__.py").touch()
    (tmp_path / "mypkg" / "models.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_is_one_object_with_what_to_expect(capfd: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["verify", "--list", "--json"]) == 0
    out, err = capfd.readouterr()
    found = {each["name"]: each["expected_verdict"] for each in json.loads(out)["workloads"]}
    assert found["gpt2-tiny"] == "VERIFY_VERDICT_EQUIVALENT"
    assert "VERIFY_VERDICT_DIFFERENT" in found.values()
    assert err == ""


def test_gpt2_tiny_is_equivalent(capfd: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["verify", "--workload", "gpt2-tiny", "--json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert report["verdict"] == "VERIFY_VERDICT_EQUIVALENT"
    assert report["workload"] == "gpt2-tiny"
    facets = {each["facet"]: each["value"] for each in report["facets"]}
    assert facets["FACET_PARAMETER_GRADIENTS"] == "FACET_VALUE_EQUAL_BITWISE"
    assert report["evidence"]["does_not_prove"]
    assert all(line.startswith("haversack: ") for line in err.splitlines())


def test_an_entry_point_of_the_current_folder_runs_once_it_is_allowed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["verify", "--workload", "mypkg.models:build", "--args", '{"layers": 2}']
    assert entry.run(line) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("haversack: workload.entry_point: 'mypkg.models:build' is not allowed")
    assert err.count("\n") == 1
    assert entry.run([*line, "--allow", "mypkg."]) == 0
    out, _ = capfd.readouterr()
    assert out.startswith('EQUIVALENT  mypkg.models:build with {"layers": 2}: outputs')


def test_a_factory_that_raises_is_a_failed_job(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(["verify", "--workload", "mypkg.models:broken", "--allow", "mypkg."]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("FAILED  mypkg.models:broken\n")
    assert "raised RuntimeError: no weights here" in " ".join(out.split())
    assert "Traceback" not in out + err


def test_an_interrupt_ends_the_job_and_exits_130(folder: Path) -> None:
    line = ["verify", "--workload", "mypkg.models:endless", "--allow", "mypkg."]
    with started(*line, folder=folder) as process, ExitStack() as ending:
        ending.callback(process.kill)
        assert process.stderr is not None
        assert process.stdout is not None
        for told in process.stderr:
            if "runs on cpu" in told:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr.read().splitlines()[-1] == "haversack: interrupted"
        assert process.stdout.read() == ""


def test_a_terminated_command_leaves_no_folder_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "haversack.cli", "verify", "--workload", "gpt2-tiny"]
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the job is known, so the server in the process is up
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert [each.name for each in tmp_path.iterdir() if "haversack" in each.name] == []
