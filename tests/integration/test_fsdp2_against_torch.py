"""FSDP2's closed form against the real ``fully_shard`` under PyTorch's tracker, and traces."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the real thing needs torch")
pytest.importorskip("transformers", "5", reason="the models are those of transformers 5")

from haversack import (
    Client,
    Document,
    DocumentFormat,
    EstimateQuestion,
    EstimateRequest,
    InvalidRequestError,
    NotSupportedError,
    Parallelism,
    Sharding,
    Training,
    connect,
)
from haversack.basis import Basis
from haversack_server.estimate.trace import TraceOrder, trace_order
from haversack_server.tracer import Tracer

ROOT = Path(__file__).parents[2]
LIMIT_PERCENT = 1.0
CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 384,
    "vocab_size": 500,
    "tie_word_embeddings": False,
}


@pytest.mark.slow
def test_every_mechanism_peaks_where_the_tracker_says() -> None:
    """In a process of its own, as a trace always is."""
    path = os.pathsep.join(str(ROOT / part) for part in ("client", "kernels", "server", "."))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.bench.fsdp2", "--quick", "--json"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(rows) == 5, ran.stderr[-2000:]
    for row in rows:
        assert abs(row["percent"]) <= LIMIT_PERCENT, row
        assert row["phase"] == row["expected_phase"], row


def request(sharding: Sharding = Sharding.FSDP2, layers: int = 3) -> EstimateRequest:
    text = json.dumps(CONFIG | {"num_hidden_layers": layers})
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
        training=Training(microbatch=1, seq=64),
        parallelism=Parallelism(world_size=4, sharding=sharding),
        questions=(EstimateQuestion.TRACE,),
    )


@pytest.fixture
def client() -> Client:
    return connect()


def test_an_estimate_is_confirmed_by_a_trace_when_asked(client: Client) -> None:
    with client:
        answer = client.estimate(request(), timeout=300)
        assert answer.trace is not None
        assert answer.trace.confirmed
        assert answer.trace.basis is Basis.SIMULATED
        assert [phase.name for phase in answer.trace.phases][:3] == [
            "step 1 forward",
            "step 1 backward",
            "step 1 optimizer",
        ]
        assert any("dropout" in correction for correction in answer.trace.corrections)
        # The corrected peak is near the closed form under the request's own kernels.
        assert answer.peak is not None
        corrected = max(phase.corrected_bytes for phase in answer.trace.phases)
        expected = answer.peak.allocated.expected_bytes
        assert abs(corrected - expected) <= LIMIT_PERCENT / 100 * expected


def test_what_a_trace_does_not_run_is_refused_by_name(client: Client) -> None:
    with client, pytest.raises(NotSupportedError, match="sharding ZERO_3"):
        client.estimate(request(Sharding.ZERO_3), timeout=300)


def order(config: str) -> TraceOrder:
    return TraceOrder(config_json=config, attention="sdpa", microbatch=1, seq=8, shards=2)


def large(**changes: object) -> EstimateRequest:
    """Ask for a trace of Llama 3 8B, which is never built."""
    text = (ROOT / "tests" / "golden" / "hf" / "llama3_8b.json").read_text(encoding="utf-8")
    config = json.dumps(json.loads(text) | changes)
    return replace(
        request(),
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=config),),
        training=Training(microbatch=1, seq=4096),
        parallelism=Parallelism(world_size=64, sharding=Sharding.FSDP2),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        trace_order(request(Sharding.FSDP1)),
        replace(trace_order(request()), recompute=True, prefetch_units=2, shards=3),
    ],
    ids=["FSDP1", "uneven, recomputed, two units ahead"],
)
async def test_tensors_without_bytes_count_as_real_ones_do(order: TraceOrder) -> None:
    tracer = Tracer()
    assert not order.fake
    real, fake = await tracer.run(order), await tracer.run(replace(order, fake=True))
    assert fake.names == real.names
    # A first run keeps the positions of a sequence, 8 bytes each, from step to step.
    positions = 2 * order.seq * 8
    assert all(
        0 <= ours - theirs <= positions for ours, theirs in zip(fake.sizes, real.sizes, strict=True)
    )


@pytest.mark.slow
def test_a_large_model_is_confirmed_without_being_built(client: Client) -> None:
    with client:
        answer = client.estimate(large(num_hidden_layers=8), timeout=300)
    assert answer.trace is not None
    assert answer.trace.confirmed
    assert "CPU tensors without bytes" in answer.trace.method
    assert answer.trace.peak_bytes > 10 * 2**30  # more than the worker may have


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "experts, which are chosen by values"),
        ({"num_hidden_layers": 200}, "200 layers takes too long"),
    ],
)
def test_what_a_large_trace_does_not_run_is_refused_by_name(
    changes: dict[str, object], refusal: str
) -> None:
    with pytest.raises((NotSupportedError, InvalidRequestError), match=refusal):
        trace_order(large(**changes))


async def test_what_the_model_s_own_code_raises_is_said() -> None:
    with pytest.raises(NotSupportedError, match=r"the trace ended with .*no_such_family"):
        await Tracer().run(order('{"model_type": "no_such_family"}'))


async def test_a_trace_that_is_late_is_killed() -> None:
    tracer = Tracer(deadline_s=0.2)
    with pytest.raises(NotSupportedError, match="was killed"):
        await tracer.run(order(json.dumps(CONFIG)))
