import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from haversack_kernels import (
    ceiling,
    ceiling_floor,
    ceiling_frontier,
    ceiling_kept,
    dense_curve,
    dense_halves,
    dense_items,
    dense_rows,
    dispatch_cost,
    knapsack,
    phases,
    prices,
    quota,
    runs,
    slots,
    sweep,
    unsettled,
)
from haversack_kernels.warmup import warm_up

ROOT = Path(__file__).parents[3]
ENTRIES: tuple[tuple[ModuleType, str], ...] = (
    (runs, "reduce"),
    (runs, "order_exactly"),
    (runs, "mask"),
    (phases, "expand"),
    (dense_items, "_spread"),
    (dense_rows, "sweep"),
    (dense_curve, "trace"),
    (dense_halves, "trace"),
    (dense_halves, "join"),
    (dispatch_cost, "_chunks"),
    (dispatch_cost, "_swept"),
    (quota, "copies_within"),
    (quota, "relaxed"),
    (quota, "tuned"),
    (quota, "order_exactly"),
    (sweep, "leanest"),
    (sweep, "sweep"),
    (prices, "tuned"),
    (prices, "outlook"),
    (ceiling_kept, "within"),
    (ceiling_kept, "is_allowed"),
    (ceiling_kept, "plan_of"),
    (ceiling_floor, "least_peak"),
    (ceiling_frontier, "frontier"),
    (ceiling_frontier, "plan_at"),
    (slots, "reach"),
    (slots, "sweep"),
    (slots, "trace"),
    (unsettled, "_left"),
)


def test_the_warm_up_calls_every_compiled_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    called = set()

    def recorder(name: tuple[str, str], entry: Any) -> Any:
        def record(*arguments: Any) -> Any:
            called.add(name)
            return entry(*arguments)

        return record

    for module, name in ENTRIES:
        entry = getattr(module, name)
        monkeypatch.setattr(module, name, recorder((module.__name__, name), entry))
    warm_up()
    assert called == {(module.__name__, name) for module, name in ENTRIES}


def test_after_the_warm_up_nothing_is_left_to_compile() -> None:
    warm_up()
    compiled = [len(getattr(module, name).signatures) for module, name in ENTRIES]

    read_only = np.frombuffer(np.array([3, 2, 2]).tobytes(), dtype=np.int64)
    knapsack.solve(read_only, np.array([5, 3, 3]), 4)
    sizes = np.random.default_rng(1).integers(1, 10_000, 300)  # through every phase
    knapsack.solve(sizes, sizes + 1000, 700_000)
    knapsack.solve(sizes << 40, sizes, 700_000 << 40, state_limit=1 << 19)
    blocks = 600  # past the limit, which takes the narrow sweeps too
    retained, extra = np.random.default_rng(0).integers(0, 1 << 30, (2, 2 * blocks))
    capacity, offsets = np.full(blocks, blocks << 28), np.arange(blocks + 1) * 2
    columns = (offsets, retained, retained, retained, extra, capacity, capacity)
    for in_flight in (1, 2):
        ceiling.solve(*columns, in_flight=in_flight, state_limit=1 << 18)
    base, budgets = np.zeros(blocks, dtype=np.int64), [blocks << 27, blocks << 28]
    ceiling.frontier(*columns[:5], base, base, budgets, state_limit=1 << 16)
    for scale in (1, 1 << 20):
        slots.solve_all(*columns[:4], extra // (1 << 12) * scale, base, base, blocks << 28)
    assert [len(getattr(module, name).signatures) for module, name in ENTRIES] == compiled


def test_after_the_warm_up_no_request_waits_for_a_kernel() -> None:
    """In a process of its own, where no other test has called one."""
    roots = [str(ROOT / each) for each in ("client", "kernels", "server", ".")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.kernels.after_warmup"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"made ready late": [], "not as declared": []}
