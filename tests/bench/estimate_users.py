"""Situations that users reported, whose figures our arithmetic has to give again.

Each figure is what the user saw, in the unit and to the digit that it was written in. The threads
stand in ``user_cases.json``. Figures are read off whole answers, or off a part of the model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.bench.estimate_rows import GOLDEN
from tests.bench.table import Row

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.run import (
    Attention,
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Recompute,
    Training,
    Unit,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory.architecture import Architecture, Parameter, UnitKind
from haversack_server.memory.architecture import Unit as ModelUnit
from haversack_server.memory.blocks import Shape
from haversack_server.memory.degrees import resolve
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.options import BlockOptions, option_table
from haversack_server.memory.states import architecture_units

GB = 10**9
MB = 10**6
GIB = 2**30
MIB = 2**20
SECTION = "user cases"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a thread: its case, what it is, as written, its last digit, and ours."""

    case: str
    what: str
    seen: float
    last_digit: float
    ours: Callable[[], float]
    unit: str

    def holds(self) -> bool:
        """Tell whether ours rounds to what was seen."""
        return abs(self.ours() - self.seen) <= self.last_digit / 2 * (1 + 1e-9)


def users() -> Iterator[Row]:
    """Every figure, with what the user saw as its gate, and half of its last digit."""
    for each in FIGURES:
        gate = f"{each.seen:g} +- {each.last_digit / 2:g}"
        yield Row(SECTION, f"{each.case}: {each.what}", each.ours(), each.unit, gate, each.holds())


def _states(parameters: float, training: Training, parallelism: Parallelism) -> Estimate:
    request = EstimateRequest(
        parameter_count=round(parameters), training=training, parallelism=parallelism
    )
    return estimate(request)


def _bytes(answer: Estimate, term: str) -> int:
    return next(each.largest_bytes or each.bytes for each in answer.terms if each.name == term)


def _config(name: str) -> Document:
    text = (GOLDEN / "hf" / f"{name}.json").read_text()
    return Document(format=DocumentFormat.HF_CONFIG, text=text, name=name)


def _architecture(name: str, vocab: int | None = None) -> Architecture:
    """Read a model, with another vocabulary if one is given."""
    read = read_hf_config(_config(name).text, name).architecture
    return read if vocab is None else replace(read, vocab=vocab)


def _blocks(model: Architecture, seq: int) -> tuple[BlockOptions, ...]:
    return option_table(model, load("hf-eager"), Shape(microbatch=1, seq=seq))


def _whole_model(parameters: float, precision: Precision) -> int:
    """Bytes of a model before anything is sharded: the parameters alone."""
    answer = _states(parameters, Training(precision=precision), Parallelism(world_size=1))
    return _bytes(answer, "parameters")


def _per_sample() -> float:
    """Growth for each sequence where a recomputed 100B model is fullest of activations.

    Its optimizer was on the host, so the backward of the last layer is the peak, whatever states
    would add later.
    """
    text = (
        '{"model_type": "gpt2", "n_embd": 10240, "n_layer": 80, "n_head": 128, '
        '"n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu"}'
    )
    request = EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
        parallelism=Parallelism(world_size=4, sharding=Sharding.ZERO_3),
        kernel_profile="megatron-local",  # the example's model is Megatron's
    )
    four, eight = (_last_layer(request, count) for count in (4, 8))
    return (eight - four) / 4 / GB


def _last_layer(request: EstimateRequest, microbatch: int) -> int:
    training = Training(
        microbatch=microbatch, seq=1024, recompute=Recompute.FULL, attention=Attention.EAGER
    )
    moments = estimate(replace(request, training=training)).timeline
    return max(each.allocated_bytes for each in moments if each.name == "backward transformer.h.79")


def _foreach() -> float:
    """Optimizer moments over the temporaries of the update."""
    training = Training(
        optimizer=Optimizer.ADAMW_FOREACH, precision=Precision.FP32_BF16_COMPUTE, seq=128
    )
    answer = estimate(
        EstimateRequest(
            documents=(_config("llama2_7b"),),
            training=training,
            parallelism=Parallelism(world_size=8, sharding=Sharding.FSDP2),
        )
    )
    return _bytes(answer, "optimizer moments") / _bytes(answer, "optimizer temporaries")


def _logits(name: str, seq: int, each_bytes: int, unit: int, vocab: int | None = None) -> float:
    logits = _blocks(_architecture(name, vocab), seq)[-1].logits
    assert logits is not None
    return logits.count * each_bytes / unit


def _root_unit() -> float:
    """The reduction's input of a unit that both tables are in."""
    answer = estimate(
        EstimateRequest(
            units=(Unit(name="tables", parameter_count=2 * 248_320 * 5120),),
            training=Training(precision=Precision.FP32_BF16_COMPUTE),
            parallelism=Parallelism(world_size=64, sharding=Sharding.FSDP2),
        )
    )
    return _bytes(answer, "reduce buffers") / GIB


def _boundaries() -> float:
    """What 28 layers keep when each is recomputed: its output."""
    layers = _blocks(_architecture("qwen3_0.6b"), 131_072)[1:-1]
    return sum(layer.option("recompute").retained_bytes for layer in layers) / GIB


def _recipe(parameters: float, precision: Precision) -> float:
    return _states(parameters, Training(precision=precision), Parallelism()).steady_bytes / GB


def _weights_and_gradients() -> float:
    answer = _states(70.55e9, Training(precision=Precision.BF16_FP32_MASTER), Parallelism())
    return (_bytes(answer, "parameters") + _bytes(answer, "gradients")) / GB


def _sharded_states() -> float:
    parallelism = Parallelism(world_size=16, sharding=Sharding.FSDP2)
    training = Training(precision=Precision.FP32_BF16_COMPUTE)
    return _states(32.76e9, training, parallelism).steady_bytes / GIB


def _two_rows(of: str) -> float:
    """A parameter of two rows over eight ranks: rows of the first rank, rows of the gather."""
    width = 64
    unit = ModelUnit("table", UnitKind.LAYER, (Parameter("weight", (2, width)),))
    degrees = resolve(Parallelism(world_size=8, sharding=Sharding.FSDP2))
    (states,) = architecture_units([unit], degrees)
    return float(getattr(states, of)) / width


FIGURES = (
    Figure("E01", "6.8B loaded whole before it is partitioned", 12_980, 1,
           lambda: _whole_model(6.805e9, Precision.BF16) / MIB, "MiB"),
    # Read off a monitor that has whole GB, between three runs: 2.5 to 3.0 for each sequence.
    Figure("E03", "100B, recomputed: growth for each sequence", 2.75, 0.5, _per_sample, "GB"),
    Figure("E10", "moments over foreach temporaries", 2.0, 1e-6, _foreach, ""),
    Figure("E17", "logits of 1,024 tokens, bf16", 0.29, 0.01,
           lambda: _logits("qwen2.5_7b", 1024, 2, GIB), "GiB"),
    Figure("E17", "logits of 1,024 tokens, fp32", 0.58, 0.01,
           lambda: _logits("qwen2.5_7b", 1024, 4, GIB), "GiB"),
    Figure("E18", "logits of 32,768 tokens, fp32", 18.55, 0.01,
           lambda: _logits("qwen2.5_7b", 32_768, 4, GIB, vocab=151_936), "GiB"),
    Figure("E19", "reduction of a unit with both tables", 9.473, 0.001, _root_unit, "GiB"),
    Figure("E20", "logits of 11,600 tokens, fp32", 10.73, 0.01,
           lambda: _logits("qwen2.5_7b", 11_600, 4, GIB, vocab=248_320), "GiB"),
    Figure("E23", "one boundary for each of 28 layers", 7.0, 0.1, _boundaries, "GiB"),
    Figure("E28", "70B: bf16 weights and gradients", 282, 1, _weights_and_gradients, "GB"),
    Figure("E28", "70B: 16 bytes per parameter", 1129, 1,
           lambda: _recipe(70.55e9, Precision.BF16_FP32_MASTER), "GB"),
    Figure("E28", "70B: 18 bytes per parameter", 1270, 1,
           lambda: _recipe(70.55e9, Precision.BF16_FP32_GRADIENT), "GB"),
    Figure("E30", "7B in fp32, whole", 25.1, 0.1,
           lambda: _whole_model(6.738e9, Precision.FP32) / GIB, "GiB"),
    Figure("E32", "32.8B over 16 ranks", 30.5, 0.1, _sharded_states, "GiB"),
    Figure("E38", "rows of the first of eight ranks", 1, 1e-6, lambda: _two_rows("shard"), "rows"),
    Figure("E38", "rows of the gathered parameter", 8, 1e-6, lambda: _two_rows("whole"), "rows"),
)  # fmt: skip
