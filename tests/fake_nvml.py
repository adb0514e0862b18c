"""Compiles the NVML that tests put in the place of a driver's: ``fake_nvml.c``."""

import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).with_suffix(".c")


def build(folder: pathlib.Path) -> pathlib.Path:
    """Compile it into a folder, which LD_LIBRARY_PATH then names; skips without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake NVML needs a C compiler, cc")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return folder
