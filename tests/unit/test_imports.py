"""What an import brings with it, and what it must not. Each in a fresh interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "numba", "torch", "haversack_server", "haversack_kernels")
IN_PROCESS = """
import haversack
with haversack.connect() as client:
    answer = client.estimate(parameter_count=1000, gpus=4, zero=3)
assert answer.steady_bytes > 0
"""


def loaded_after(program: str, *names: str) -> list[str]:
    """Which of the packages are loaded after the program."""
    roots = [str(ROOT / each) for each in ("client", "kernels", "server")]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{program}\nimport sys\nprint(*(n for n in {names} if n in sys.modules))",
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_package_is_light() -> None:
    assert loaded_after("import haversack", "grpc", "google.protobuf", *HEAVY) == []


def test_nouns_come_without_grpc() -> None:
    program = "from haversack import EstimateRequest, PlanRequest, VerifyRequest"
    assert loaded_after(program, "grpc", "google.protobuf", *HEAVY) == []


def test_the_clients_come_without_the_server() -> None:
    assert loaded_after("from haversack import Client, AsyncClient", "grpc", *HEAVY) == ["grpc"]


def test_the_command_line_comes_without_grpc() -> None:
    assert loaded_after("import haversack.cli", "grpc", "google.protobuf", *HEAVY) == []


def test_an_estimate_in_process_compiles_nothing() -> None:
    assert loaded_after(IN_PROCESS, "haversack_server", "numba", "torch") == ["haversack_server"]


@pytest.mark.parametrize("program", ["import haversack"])
def test_the_import_takes_little_time(program: str) -> None:
    timed = f"import time; t = time.process_time(); {program}; print(time.process_time() - t)"
    roots = str(ROOT / "client")
    done = subprocess.run(
        [sys.executable, "-c", timed],
        env=os.environ | {"PYTHONPATH": roots},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 0.3  # seconds of the processor, not of the clock
