"""The CUDA kernels against the card's copy bandwidth, each other and the CPU: one run, one table.

    python -m tests.bench.gpu [--out FILE] [--seconds 220] [--simulate]

Needs a CUDA device and numba-cuda; prints what it ran on, a table, then one line of JSON. A figure
that is out of time is left out by name. ``--simulate`` runs tiny sizes in numba's simulator, to
test this program: its times are evidence of nothing.
"""

import argparse
import datetime
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.bench import machine
from tests.bench.table import Row

PACKAGES = ("numba-cuda", "cuda-core", "cuda-bindings", "nvidia-ml-py")
SIMULATED = "SIMULATED on CPU threads: no evidence of any speed"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--seconds", type=float, default=220.0, help="begin no figure after these")
    parser.add_argument("--simulate", action="store_true")
    asked = parser.parse_args()
    started = time.perf_counter()
    described = simulator() if asked.simulate else card()
    print(machine.heading(described), flush=True)
    rows, left_out = measured(asked.simulate, started + asked.seconds)
    seconds = time.perf_counter() - started
    print(f"{seconds:.0f} s in all; left out: {', '.join(left_out) or 'nothing'}")
    if asked.simulate:
        print(SIMULATED)
    result = {
        "evidence": not asked.simulate,
        "machine": described,
        "seconds": round(seconds, 1),
        "left_out": left_out,
        "rows": [row._asdict() for row in rows],
    }
    text = json.dumps(result)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")
    checked = [row.reached for row in rows if row.unit == "identity"]
    if not checked or not all(checked):
        sys.exit("the device's answers were not seen to be the CPU's: no figure above counts")


def card() -> dict[str, str]:
    """Describe the device and what drives it, or leave with one sentence if there is none."""
    from haversack_kernels import cuda

    device = cuda.device()
    if device is None:
        sys.exit("no figure: this needs a visible NVIDIA GPU, its driver and numba-cuda")
    major, minor = device.compute_capability
    return {
        "card": f"{device.name}, {device.memory_bytes / 2**30:.0f} GiB, sm_{major}{minor}",
        "driver": device.driver or "unknown",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **{package: _version(package) for package in PACKAGES},
        **machine.describe(),
    }


def simulator() -> dict[str, str]:
    """Turn ``numba.cuda`` into the simulator, before anything imports it, and say so."""
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"card": SIMULATED, "date": date, **machine.describe()}


def measured(simulate: bool, deadline: float) -> tuple[list[Row], list[str]]:
    """Return all figures, and which were left out: out of time, or after the device failed."""
    from tests.bench import gpu_figures

    figures = gpu_figures.Figures(gpu_figures.TINY if simulate else gpu_figures.FULL).all()
    rows: list[Row] = []
    names = list(figures)
    for number, name in enumerate(names):
        if time.perf_counter() > deadline:
            return rows, names[number:]
        try:
            for row in figures[name]():
                if simulate and row.unit != "identity":  # nothing to be reached or missed
                    row = row._replace(gate="", reached=None)
                print(row, flush=True)
                rows.append(row)
        except gpu_figures.DeviceFaultError as fault:
            print(f"{name}: {fault}")
            return rows, names[number:]
    return rows, []


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
