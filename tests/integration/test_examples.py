"""The examples that run models do what they say."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PATH = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))

pytest.importorskip("torch", reason="these examples need the extra torch")


def run(arguments: list[str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture
def example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Run a script of the examples; gives what it prints. Here, where PyTorch is loaded already."""
    monkeypatch.chdir(ROOT)

    def run_here(name: str) -> str:
        runpy.run_path(f"examples/{name}", run_name="__main__")
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run_here


def test_a_plan_is_applied_and_the_loss_stays_the_same(example: Callable[[str], str]) -> None:
    pytest.importorskip("transformers", reason="this example builds a Llama of transformers")
    said = example("apply_plan.py")
    assert "OPTIMAL: 3 of 6 layers recomputed" in said
    assert "equal to the bit" in said


def test_a_profiled_model_trains_within_half_of_its_peak_with_equal_losses(
    example: Callable[[str], str],
) -> None:
    said = example("profile_plan.py")
    assert said.startswith("OPTIMAL: ")
    assert "equal to the bit" in said
    figures = dict(re.findall(r"^(.*): ([\d.]+) MiB", said, re.MULTILINE))
    without, planned = float(figures["without the plan"]), float(figures["with the plan"])
    # Measured on the CPU's allocator; kernels take a little for themselves.
    assert planned < 0.51 * without
    assert float(figures["the whole step under fake tensors"]) <= planned


def test_the_example_workload_is_equivalent() -> None:
    line = ["-m", "haversack.cli", "verify", "--workload", "workload:build", "--allow", "workload."]
    done = run([*line, "--args", '{"layers": 2}'], ROOT / "examples")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("EQUIVALENT")


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["fsdp2", "ddp"])
def test_ranks_of_the_protocol_compare_a_recomputed_step(shard: str) -> None:
    done = run([*RANKS, "examples/verify_ranks.py", "--shard", shard])
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["rank"] for each in found] == [0, 1]
    assert {each["difference"] for each in found} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["fsdp2", "ddp"])
def test_ranks_of_the_protocol_find_a_draw_that_no_recomputation_repeats(
    shard: str, tmp_path: Path
) -> None:
    code = (ROOT / "examples/verify_ranks.py").read_text()
    dropout, model = "nn.Dropout(0.1)", "class Model("
    assert dropout in code
    assert model in code
    draw = "class Draw(nn.Module):\n    def forward(self, x): return x * random.random()\n\n\n"
    changed = code.replace(dropout, "Draw()").replace(model, draw + model)
    (tmp_path / "changed.py").write_text(changed)
    done = run([*RANKS, str(tmp_path / "changed.py"), "--shard", shard])
    assert done.returncode != 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["noise"] for each in found} == {0.0}
    assert all(each["difference"] > 0 for each in found)
