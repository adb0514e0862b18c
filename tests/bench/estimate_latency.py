"""How long a closed-form answer takes, beside a bare call through the same server.

Server side: without the network. The bare call is the health check, which does nothing. Every round
asks for another sequence length, so that no answer is a repetition; code is warm.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.bench.estimate_rows import GOLDEN
from tests.bench.table import Row, at_most
from tests.integration.servers import served

from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Device, Document, DocumentFormat, Training
from haversack_server.estimate.answer import estimate

ROUNDS = 60
WARM_UP = 5
SECTION = "latency"


def latency() -> Iterator[Row]:
    """One rank, and all ranks of a PP x TP x EP job, in bare calls."""
    gc.collect()
    gc.freeze()  # as ``haversack serve`` does when it is ready
    with served() as running, grpc.insecure_channel(running.target) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest()
        times = _times(
            {
                "bare call": lambda _: health.Check(check),
                "one rank": lambda turn: estimate(_turned(_one_rank(), turn)),
                "all ranks": lambda turn: estimate(_turned(_all_ranks(), turn)),
                "one rank, every default question": lambda turn: estimate(
                    replace(_turned(_one_rank(), turn), questions=())
                ),
            }
        )
    bare = times["bare call"]
    yield Row(SECTION, "bare call (health check)", bare * 1e6, "us")
    for name, gate in (("one rank", 3), ("all ranks", 60)):
        yield Row(SECTION, name, times[name] * 1e6, "us")
        yield at_most(SECTION, f"{name}, in bare calls", times[name] / bare, gate)
    asked = times["one rank, every default question"]
    what = "one rank with timeline, advice and searches"
    yield Row(SECTION, what, asked * 1e6, "us")
    # A dozen answers in one: it does not reach the bound of one, which the notes explain.
    yield Row(SECTION, f"{what}, in bare calls", asked / bare, "x")


def _times(works: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """Median seconds of each, interleaved."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(WARM_UP + ROUNDS):
        for name, work in works.items():
            start = time.perf_counter()
            work(turn)
            if turn >= WARM_UP:
                taken[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in taken.items()}


def _turned(request: EstimateRequest, turn: int) -> EstimateRequest:
    seq = (request.training.seq or 0) + 8 * turn
    return replace(request, training=replace(request.training, seq=seq))


def _one_rank() -> EstimateRequest:
    return EstimateRequest(
        documents=(_document("llama3_8b"),),
        training=Training(microbatch=1, seq=4096),
        parallelism=Parallelism(world_size=8, sharding=Sharding.FSDP2),
        device=Device(memory_bytes=80 * 2**30),
        questions=(EstimateQuestion.BRIEF,),
    )


def _all_ranks() -> EstimateRequest:
    return EstimateRequest(
        documents=(_document("mixtral_8x7b"),),
        training=Training(microbatch=1, seq=4096, accumulation=16),
        parallelism=Parallelism(
            world_size=128, pp=4, tp=2, ep=8, sequence_parallel=True, sharding=Sharding.ZERO_1
        ),
        device=Device(memory_bytes=80 * 2**30),
        questions=(EstimateQuestion.BRIEF,),
    )


def _document(name: str) -> Document:
    text = (GOLDEN / "hf" / f"{name}.json").read_text()
    return Document(format=DocumentFormat.HF_CONFIG, text=text, name=name)
