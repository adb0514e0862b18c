"""Every CUDA kernel compiles for an H100 or H200 (sm_90), and as its docstring says.

Without a device, in a process of its own. Needs CUDA's compiler library: numba-cuda[cu13] brings
it, and so does a CUDA toolkit.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KERNELS = (
    "sweep_one int32",
    "sweep_one int64",
    "sweep_one float64",
    "sweep_group int32",
    "sweep_group int64",
    "sweep_group float64",
    "extend_one int32",
    "extend_one int64",
    "extend_group int32",
    "extend_group int64",
    "trace",
    "trace of options",
)
PARAMETERS = {
    # An array of d dimensions makes 5 + 2 d parameters: ``haversack_kernels.cuda.calls``.
    "sweep_one": 4 * 7 + 2 * 9 + 11 + 2,
    "sweep_group": 3 * 7 + 2 * 9 + 11 + 2,
    "trace": 3 * 7 + 3 * 9,
    "extend_one": 2 * 7 + 3 * 9 + 11 + 2,
    "extend_group": 2 * 7 + 3 * 9 + 11 + 2,
    "trace of options": 3 * 7 + 4 * 9,
}
REGISTERS = {
    # By 32 bits, what one block may use of 65,536 registers, by the threads it has at most.
    "sweep_group int32": 65536 // 1024,
    "sweep_group int64": 80,
    "sweep_group float64": 80,
    "extend_group int32": 64,
    "extend_group int64": 64,
}


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    environment = {name: os.environ[name] for name in os.environ if name != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.compile", "9.0"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), "."])},
        capture_output=True,
        text=True,
        check=False,
    )
    if "NoDeviceError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    compiled: dict[str, str] = json.loads(done.stdout)
    if "missing" in compiled:
        pytest.skip(f"no CUDA compiler library: {compiled['missing']}")
    return compiled


def test_every_kernel_is_compiled(ptx: dict[str, str]) -> None:
    assert sorted(ptx) == sorted(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_hopper_without_local_memory(ptx: dict[str, str], name: str) -> None:
    code = ptx[name]
    assert ".target sm_90" in code
    # An array that is not kept in registers would lie there, and be as slow as global memory.
    assert ".local" not in code


@pytest.mark.parametrize("name", [name for name in KERNELS if "group" in name])
def test_a_fused_kernel_works_in_shared_memory(ptx: dict[str, str], name: str) -> None:
    code = ptx[name]
    assert code.count("ld.shared") >= 32
    assert code.count("st.shared") >= 32
    assert code.count("bar.sync") >= 3


def test_int32_cells_are_compared_as_such(ptx: dict[str, str]) -> None:
    # numba adds int32 as int64 unless told otherwise, at half the speed.
    assert ptx["sweep_group int32"].count("max.s32") > 16
    assert "max.s64" not in ptx["sweep_group int32"]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas, which counts registers")
@pytest.mark.parametrize("name", sorted(REGISTERS))
def test_a_fused_kernel_spills_no_register(ptx: dict[str, str], name: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.ptx"
    source.write_text(ptx[name])
    done = subprocess.run(
        [
            "ptxas",
            "-arch=sm_90",
            "-v",
            f"-maxrregcount={REGISTERS[name]}",
            str(source),
            "-o",
            str(tmp_path / "kernel.cubin"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", done.stderr), done.stderr


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_takes_its_arguments_as_calls_lay_them_out(ptx: dict[str, str], name: str) -> None:
    parameters = re.findall(r"\.param [^\n]*?\.([a-z]+\d+) [^\n]*_param_\d+", ptx[name])
    assert set(parameters) <= {"u64", "u32", "f64"}
    assert len(parameters) == PARAMETERS[name if " of " in name else name.split()[0]]
