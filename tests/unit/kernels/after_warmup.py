"""What compiles or loads after the warm-up: run as ``python -m tests.unit.kernels.after_warmup``.

Warms up, then plans by every algorithm and type of cell that a request can lead to; prints the
kernels that had to be made ready meanwhile, and those that are compiled for other types than their
annotations declare, as one JSON object.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
from tests.bench.instances import make
from tests.unit.kernels.declared import signatures_fit
from tests.unit.kernels.test_warmup import ENTRIES

from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Candidates, PlanRequest
from haversack.run import Budget, Document, DocumentFormat, Training
from haversack_kernels import cache, dispatch
from haversack_kernels._jit import Int64
from haversack_kernels.warmup import warm_up
from haversack_server.plan.answer import plan

MODEL = Path(__file__).parents[3] / "examples/llama3_8b.json"
EAGER = dispatch.CPU._replace(one_ns=lambda work: 0.02 * work.cells, chain_ns=lambda work: 1.0)
SPARING = dispatch.cpu(memory_bytes=2_800_000)._replace(one_ns=EAGER.one_ns)


def main() -> None:
    warm_up()
    before = made_ready()
    ways = set()
    for request, device in requests():
        answer = plan(request, devices=lambda device=device: (device,))  # type: ignore[misc]
        assert answer.solved_by is not None
        ways.add((answer.solved_by.algorithm, answer.solved_by.cells))
    assert {way for way, _ in ways} == {"core", "core, then dense", "lists", "lists, then slots"}
    assert {cells for _, cells in ways} >= {"", "int32", "int64"}
    late = [name for name, count in made_ready().items() if count != before[name]]
    odd = [f"{module.__name__}.{name}" for module, name in ENTRIES if not is_declared(module, name)]
    print(json.dumps({"made ready late": late, "not as declared": odd}))


def is_declared(module: ModuleType, name: str) -> bool:
    return signatures_fit(getattr(module, name))


def made_ready() -> dict[str, int]:
    return {
        f"{each.py_func.__module__}.{each.py_func.__name__}": len(each.signatures)
        for each in cache._dispatchers
        if hasattr(each, "signatures")
    }


def requests() -> Iterator[tuple[PlanRequest, dispatch.Device]]:
    _, sizes, gains, capacity = make("multiple strongly", 200, 100_000)
    uneven = np.arange(gains.size) % 2
    for scale in (1, 1 << 24, 1 << 40):
        yield candidates(sizes, gains * scale + uneven, capacity), EAGER
    yield candidates(sizes << 40, gains << 40, capacity << 40), EAGER
    _, sizes, gains, capacity = make("multiple strongly", 500, 100_000)
    yield candidates(sizes, (gains << 33) + np.arange(gains.size) % 2, capacity), SPARING
    vast = 2**61 + np.arange(43)  # sums beyond what the search in int64 holds
    yield candidates(np.full(43, 2), vast, 7), EAGER
    yield candidates(np.arange(1, 300), np.arange(1, 300), 10), EAGER
    for state_limit in (None, 1):
        yield of_model(state_limit), EAGER


def candidates(sizes: Int64, gains: Int64, capacity: int) -> PlanRequest:
    columns = Candidates(size_bytes=tuple(sizes.tolist()), gain=tuple(gains.tolist()))
    return PlanRequest(candidates=columns, budget=Budget(bytes=int(capacity)), frontier_points=4)


def of_model(state_limit: int | None) -> PlanRequest:
    return PlanRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=MODEL.read_text()),),
        training=Training(microbatch=2, seq=8192),
        parallelism=Parallelism(world_size=8, sharding=Sharding.ZERO_3),
        budget=Budget(bytes=60 << 30),
        fit_expected=True,
        frontier_points=4,
        state_limit=state_limit,
    )


if __name__ == "__main__":
    main()
