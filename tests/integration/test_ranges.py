"""A light install works at both ends of the ranges that it declares.

The stubs come from the oldest supported generator, and a trainer's environment decides which
protobuf it is: both are promises. Needs a package index.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.servers import served

from haversack_server.service.app import Running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ENDS = {
    "floor": ["grpcio==1.71.2", "protobuf==5.29.*"],
    "middle": ["grpcio", "protobuf==6.33.*"],
    "newest": ["grpcio", "protobuf<8"],
}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as running:
        yield running


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def installed(folder: Path, requirements: list[str]) -> Path:
    """Make an environment; gives its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    pip = f"{python} -m pip --quiet --disable-pip-version-check install".split()
    subprocess.run([*pip, *declared(), *requirements], check=True)
    return python


@pytest.mark.parametrize("requirements", ENDS.values(), ids=ENDS)
def test_a_light_client_works(requirements: list[str], running: Running, tmp_path: Path) -> None:
    python = installed(tmp_path / "environment", requirements)
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    done = subprocess.run(
        [python, ROOT / "tests/integration/light_client.py", running.target],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_floors_are_those_of_the_generator() -> None:
    script = (ROOT / "scripts/generate_stubs.sh").read_text()
    assert 'grpcio-tools==1.71.2 grpcio==1.71.2 "protobuf==5.29.*"' in script
    assert {"grpcio>=1.71.2", "protobuf>=5.29,<8"} <= set(declared())
