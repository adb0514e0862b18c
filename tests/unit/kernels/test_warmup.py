from typing import Any

import numpy as np
import pytest

from haversack_kernels import ceiling, core, knapsack, prices, sweep
from haversack_kernels.warmup import warm_up

ENTRIES: tuple[tuple[Any, str], ...] = (
    (core, "search"),
    (sweep, "leanest"),
    (sweep, "sweep"),
    (prices, "prices"),
    (prices, "outlook"),
)


def test_the_warm_up_calls_every_compiled_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    called = set()

    def recorder(name: str, entry: Any) -> Any:
        def record(*arguments: Any) -> Any:
            called.add(name)
            return entry(*arguments)

        return record

    for module, name in ENTRIES:
        monkeypatch.setattr(module, name, recorder(name, getattr(module, name)))
    warm_up()
    assert called == {name for _, name in ENTRIES}


def test_after_the_warm_up_nothing_is_left_to_compile() -> None:
    warm_up()
    compiled = [len(getattr(module, name).signatures) for module, name in ENTRIES]

    read_only = np.frombuffer(np.array([3, 2, 2]).tobytes(), dtype=np.int64)
    knapsack.solve(read_only, np.array([5, 3, 3]), 4)
    blocks = 600  # enough for lists beyond the first width, which take the priced sweeps
    retained, extra = np.random.default_rng(0).integers(0, 1 << 30, (2, 2 * blocks))
    capacity, offsets = np.full(blocks, blocks << 28), np.arange(blocks + 1) * 2
    ceiling.solve(
        offsets, retained, retained, retained, extra, capacity, capacity, state_limit=1 << 20
    )
    assert [len(getattr(module, name).signatures) for module, name in ENTRIES] == compiled
