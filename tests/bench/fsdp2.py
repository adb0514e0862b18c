"""The closed form of FSDP against PyTorch's own tracker: ``python -m tests.bench.fsdp2``.

Every case is one model that really takes two steps under ``fully_shard``, or FSDP1, on the fake
process group (CPU tensors), with PyTorch's memory tracker counting. The limit: the peak at most 1 %
away, and in the same phase. ``--quick`` runs the cases that the tests run, of fewer layers;
``--json`` prints one object a line.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import BackwardPrefetch, Parallelism, Sharding, WrapPolicy
from haversack.questions import EstimateQuestion
from haversack.run import (
    Document,
    DocumentFormat,
    NumberType,
    Optimizer,
    OptimizerKernel,
    Precision,
    Recompute,
    Training,
)
from haversack.trace import Trace
from haversack_server.estimate.trace import CPU_PROFILE, trace_order, with_trace

LIMIT_PERCENT = 1.0
_FEWER_LAYERS = 4  # the tests', still more than are gathered ahead
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 768,
    "vocab_size": 2000,
    "tie_word_embeddings": False,
}
# Rows that no world divides: padding on every parameter.
UNEVEN = LLAMA | {"intermediate_size": 690, "vocab_size": 1501, "num_attention_heads": 4}
TIED = LLAMA | {"tie_word_embeddings": True}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 256,
    "n_layer": 5,
    "n_head": 8,
    "vocab_size": 1500,
    "n_positions": 256,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 48}
BASE = Training(
    microbatch=1,
    seq=64,
    precision=Precision.FP32,
    optimizer=Optimizer.ADAMW,
    optimizer_kernel=OptimizerKernel.FUSED,
    recompute=Recompute.NONE,
)
MIXED = replace(BASE, precision=Precision.FP32_BF16_COMPUTE, reduce_type=NumberType.FP32)
RANKS = Parallelism(world_size=8, sharding=Sharding.FSDP2, wrap=WrapPolicy.BLOCKS)


@dataclass(frozen=True)
class Case:
    """One run, by its name."""

    name: str
    config: dict[str, Any]
    training: Training
    parallelism: Parallelism

    @property
    def request(self) -> EstimateRequest:
        """The question, under the kernels of the CPU."""
        document = Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(self.config))
        return EstimateRequest(
            documents=(document,),
            training=self.training,
            parallelism=self.parallelism,
            kernel_profile=CPU_PROFILE,
            questions=(EstimateQuestion.TRACE,),
        )


def quick(layers: int = 6) -> Iterator[Case]:
    """Give the few cases of the tests, on models of so many layers: every mechanism once."""
    llama, uneven = (each | {"num_hidden_layers": layers} for each in (LLAMA, UNEVEN))
    yield Case("mixed, 8 ranks", llama, MIXED, RANKS)
    yield Case("fp32, 3 ranks, uneven", uneven, BASE, replace(RANKS, world_size=3))
    hsdp = replace(RANKS, dp_replicate=2, wrap=WrapPolicy.LAYERS)
    yield Case(
        "HSDP 2 x 4, bf16 reduction", llama, replace(MIXED, reduce_type=NumberType.BF16), hsdp
    )
    kept = replace(RANKS, reshard_after_forward=False, wrap=WrapPolicy.LAYERS)
    yield Case("kept after forward, layers in units", llama, MIXED, kept)
    ahead = replace(RANKS, prefetch_units=2)
    yield Case("prefetch 2, recompute", llama, replace(MIXED, recompute=Recompute.FULL), ahead)


def every() -> Iterator[Case]:
    """Give the whole grid."""
    yield from quick()
    for world in (1, 2, 4, 7, 16, 32, 64):
        for name, training in (("fp32", BASE), ("mixed", MIXED)):
            yield Case(f"{name}, {world} ranks", LLAMA, training, replace(RANKS, world_size=world))
    for wrap in (WrapPolicy.BLOCKS, WrapPolicy.LAYERS):
        for depth in (0, 1, 2):
            ranks = replace(RANKS, prefetch_units=depth, wrap=wrap)
            yield Case(f"prefetch {depth}, {wrap.name.lower()}", LLAMA, MIXED, ranks)
        for reduce in (NumberType.BF16, NumberType.FP32):
            training = replace(MIXED, reduce_type=reduce)
            name = f"HSDP 2 x 4, {reduce.name.lower()} reduction, {wrap.name.lower()}"
            yield Case(name, LLAMA, training, replace(RANKS, dp_replicate=2, wrap=wrap))
        for training in (BASE, MIXED):
            ranks = replace(RANKS, reshard_after_forward=False, wrap=wrap)
            name = f"kept after forward, {training.precision.name.lower()}, {wrap.name.lower()}"
            yield Case(name, LLAMA, training, ranks)
    for fewer in (2, 4):
        resharded = replace(RANKS, reshard_ranks=fewer)
        yield Case(f"resharded to {fewer} of 8", LLAMA, MIXED, resharded)
    yield from _models()
    yield from _optimizers()
    yield from _flat()


def _models() -> Iterator[Case]:
    for world in (3, 7, 64):
        yield Case(f"uneven, {world} ranks", UNEVEN, MIXED, replace(RANKS, world_size=world))
    for name, config in (("tied", TIED), ("GPT-2", GPT2), ("Qwen3", QWEN3)):
        yield Case(f"{name}, mixed", config, MIXED, RANKS)
        yield Case(f"{name}, fp32, layers", config, BASE, replace(RANKS, wrap=WrapPolicy.LAYERS))
    longer = replace(MIXED, microbatch=4, seq=128)
    yield Case("many tokens", LLAMA, longer, RANKS)
    yield Case("many tokens, recompute", LLAMA, replace(longer, recompute=Recompute.FULL), RANKS)


def _optimizers() -> Iterator[Case]:
    for kernel in (OptimizerKernel.FOREACH, OptimizerKernel.FOR_LOOP):
        training = replace(BASE, optimizer_kernel=kernel)
        ranks = replace(RANKS, world_size=1)
        yield Case(f"AdamW {kernel.name.lower()}, 1 rank", LLAMA, training, ranks)
        yield Case(f"AdamW {kernel.name.lower()}, 8 ranks", LLAMA, training, RANKS)
    for optimizer in (Optimizer.SGD, Optimizer.SGD_MOMENTUM):
        training = replace(BASE, optimizer=optimizer)
        yield Case(optimizer.name.lower(), LLAMA, training, RANKS)


def _flat() -> Iterator[Case]:
    """FSDP1 beside it: flat parameters, no copies, other prefetches."""
    flat = replace(RANKS, sharding=Sharding.FSDP1, wrap=WrapPolicy.LAYERS)
    for name, training in (("fp32", BASE), ("mixed", MIXED)):
        yield Case(f"FSDP1, {name}", LLAMA, training, flat)
    for prefetch in (BackwardPrefetch.POST, BackwardPrefetch.NONE):
        ranks = replace(flat, backward_prefetch=prefetch)
        yield Case(f"FSDP1, prefetch {prefetch.name.lower()}", LLAMA, MIXED, ranks)
    kept = replace(flat, reshard_after_forward=False)
    yield Case("FSDP1, kept after forward", LLAMA, MIXED, kept)
    yield Case("FSDP1, blocks", LLAMA, MIXED, replace(flat, wrap=WrapPolicy.BLOCKS))
    yield Case("FSDP1, uneven, 3 ranks", UNEVEN, MIXED, replace(flat, world_size=3))


def run(case: Case) -> Trace:
    """Trace one case in this process, which is one of its own."""
    from haversack_server.worker.fully_shard import trace

    found = trace(trace_order(case.request))
    answer = with_trace(Estimate(), case.request, found)
    assert answer.trace is not None
    return answer.trace


def row(case: Case) -> dict[str, Any]:
    """Compare: the peak, its phase, and the phase that is furthest away."""
    found = run(case)
    expected = max(found.phases, key=lambda phase: phase.expected_bytes)
    apart = [
        (100 * (phase.expected_bytes / phase.traced_bytes - 1), phase.name)
        for phase in found.phases
    ]
    worst = max(apart, key=lambda pair: abs(pair[0]))
    return {
        "case": case.name,
        "traced_bytes": found.peak_bytes,
        "expected_bytes": expected.expected_bytes,
        "percent": round(100 * (expected.expected_bytes / found.peak_bytes - 1), 4),
        "phase": found.peak_phase,
        "expected_phase": expected.name,
        "worst_phase": f"{worst[1]} {worst[0]:+.2f} %",
        "confirmed": found.confirmed,
    }


def main() -> None:
    """Print every case, then the verdict of the gate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the cases of the tests only")
    parser.add_argument("--json", action="store_true", help="one object a line")
    arguments = parser.parse_args()
    rows = []
    for case in quick(_FEWER_LAYERS) if arguments.quick else every():
        rows.append(row(case))
        print(json.dumps(rows[-1]) if arguments.json else _line(rows[-1]), flush=True)
    missed = [each["case"] for each in rows if not each["confirmed"]]
    if not arguments.json:
        worst = max(abs(each["percent"]) for each in rows)
        print(
            f"{len(rows)} cases, worst peak {worst:.3f} % (limit {LIMIT_PERCENT:g} %, same phase)"
        )
        print(f"missed: {', '.join(missed)}" if missed else "none missed")
    sys.exit(1 if missed else 0)


def _line(found: dict[str, Any]) -> str:
    return (
        f"{found['case']:42} {found['traced_bytes']:>12,} {found['expected_bytes']:>12,} "
        f"{found['percent']:+8.4f} %  {found['phase']:16} worst: {found['worst_phase']}"
    )


if __name__ == "__main__":
    main()
