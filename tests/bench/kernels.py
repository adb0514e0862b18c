"""The kernels against their peers, the machine and each other: every figure of one run.

    python -m tests.bench.kernels [--json] [--only SECTION ...] [--write docs/benchmarks/kernels.md]

Ratios are medians over interleaved rounds in thread CPU time; lost ones are printed too. Absolute
figures depend on the machine and on who shares it.
"""

import os
import time
from collections.abc import Callable, Iterator

from tests.bench import (
    dense,
    kernels_ceiling,
    kernels_core,
    kernels_dispatch,
    machine,
    segments,
)
from tests.bench.report import as_markdown, figures, options, told
from tests.bench.table import Row

from haversack_kernels.warmup import warm_up

SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "anchors": kernels_core.anchors,
    "hard": kernels_core.hard,
    "dispatch": kernels_dispatch.choices,
    "dispatch-model": kernels_dispatch.predictions,
    "core-peers": kernels_core.peers,
    "bytes": kernels_core.in_bytes,
    "slots": kernels_ceiling.dense_slots,
    "lists": kernels_ceiling.lists,
    "floor": kernels_ceiling.floors,
    "cp-sat": kernels_ceiling.against_cp_sat,
    "budgets": kernels_ceiling.budgets,
    "in-flight": kernels_ceiling.in_flight,
    **{f"dense-{name}": section for name, section in dense.SECTIONS.items()},
    "segments": segments.rows,
}


INTRO = (
    "By `python -m tests.bench.kernels --write docs/benchmarks/kernels.md`.",
    "What follows the tables, if anything, is by hand. Figures of CUDA are in [gpu.md](gpu.md).",
    "Ratios are medians over interleaved rounds in thread CPU time. 1 ppm is 1e-6, 1 ppb 1e-9.",
)


def main() -> None:
    """Print the machine and every figure, as a table or as one JSON object."""
    asked = options(__doc__, SECTIONS).parse_args()
    described, started = machine.describe(), time.perf_counter()
    warm_up()
    rows = told(described, figures(SECTIONS, asked.only), as_json=asked.json)
    if asked.write:
        described["load at the end"] = f"{os.getloadavg()[0]:.1f}"
        described["seconds in all"] = f"{time.perf_counter() - started:.0f}"
        asked.write.write_text(as_markdown("Kernels: figures of one run", INTRO, described, rows))


if __name__ == "__main__":
    main()
