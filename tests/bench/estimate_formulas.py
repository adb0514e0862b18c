"""What is exact: published formulas, measured blocks, parameters and optimizer state of torch.

Each row is compared with the same code that an answer runs. Needs torch and transformers.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from tests.bench.estimate_rows import GOLDEN, rows
from tests.bench.table import Row
from tests.integration.random_configs import ours, random_config, theirs
from tests.integration.test_tapes_against_torch import CASES, really_saved, said_to_be_saved
from tests.integration.test_tapes_against_torch import DTYPES as FLOATS
from tests.unit.memory.test_golden_blocks import (
    BYTES,
    architecture,
    measured_profile,
    paper_option,
    saved_bytes,
)

from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Optimizer, Precision, Training
from haversack_server.estimate.answer import estimate
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.hf_families import FAMILIES
from haversack_server.memory.layers import layer_tape
from haversack_server.memory.optimizers.state import moments_of
from haversack_server.memory.optimizers.tensors import Updated
from haversack_server.memory.recipe import recipe

STAGES = {1: Sharding.ZERO_1, 2: Sharding.ZERO_2, 3: Sharding.ZERO_3}
CONFIGURATIONS = 7  # of each of the 34 families: 238


def zero_table() -> Iterator[Row]:
    """ZeRO's Table 1, within one unit of the last printed digit."""
    for row in rows("zero_table.json", GOLDEN):
        parallelism = Parallelism(world_size=row["ranks"], sharding=STAGES[row["stage"]])
        answer = estimate(
            EstimateRequest(parameter_count=row["parameters"], parallelism=parallelism)
        )
        off = abs(answer.steady_bytes - row["printed_bytes"]) / row["last_digit_bytes"]
        what = f"ZeRO {row['stage']}, {row['parameters'] / 1e9:g}B on {row['ranks']} ranks"
        yield Row("formulas", what, off, "digits", "<= 1", off <= 1)


def paper_activations() -> Iterator[Row]:
    """The activation-recomputation paper's bytes of a layer, to the byte."""
    for row in rows("formula_activations.json", GOLDEN):
        off = abs(paper_option(row).retained_bytes - row["value_bytes"])
        yield Row("formulas", row["id"], off, "bytes", "= 0", off == 0)


def measured_blocks() -> Iterator[Row]:
    """Bytes that autograd was measured to save in a block on the CPU, to the byte."""
    for row in rows("cpu_blocks.json", GOLDEN):
        off = abs(_saved(row) - row["value_bytes"])
        yield Row("blocks", row["id"], off, "bytes", "= 0", off == 0)


def live_blocks() -> Iterator[Row]:
    """Real layers that run here, under hooks on what autograd saves, to the byte."""
    for name, attention in CASES:
        given = [(name, attention, microbatch, dtype) for microbatch in (1, 2) for dtype in FLOATS]
        off = max(abs(said_to_be_saved(*each) - really_saved(*each)) for each in given)
        what = f"{name}, {attention}: most bytes apart in {len(given)} runs"
        yield Row("blocks", what, off, "bytes", "= 0", off == 0)


def _saved(row: Mapping[str, Any]) -> int:
    sizes = row["model"]
    gpt2 = "gpt2" in row["id"]
    model = architecture(sizes, "gpt2" if gpt2 else "llama", 0.1 if gpt2 else 0.0)
    shape = Shape(
        microbatch=sizes["microbatch"], seq=sizes["seq"], attention=AttentionKind(row["attention"])
    )
    tables = 0 if gpt2 else 2 * sizes["seq"] * model.head_dim * BYTES
    return saved_bytes(layer_tape(model, measured_profile(dict(row)), shape)) + tables


def parameters() -> Iterator[Row]:
    """Random configurations of every family against the modules that transformers builds."""
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()  # vocabularies here are smaller than token ids
    for family in sorted(FAMILIES):
        configs = [random_config(family, seed) for seed in range(CONFIGURATIONS)]
        off = max(_parameters_off(config) for config in configs)
        what = f"{family}: most parameters apart in {len(configs)} random configurations"
        yield Row("parameters", what, off, "", "= 0", off == 0)


def _parameters_off(config: dict[str, Any]) -> int:
    """Count what is apart, parameter by parameter, and those of one side alone."""
    model = read_hf_config(json.dumps(config)).architecture
    here, there = ours(model), theirs(config)
    names = here.keys() | there.keys()
    return sum(abs(prod(here.get(name, (0,))) - prod(there.get(name, (0,)))) for name in names)


def optimizer_states() -> Iterator[Row]:
    """Bytes of real optimizers' state after a step, against the recipe's, to the byte."""
    for (optimizer, kernel), precision in product(OPTIMIZERS, DTYPES):
        training = Training(optimizer=optimizer, precision=precision)
        numbers, _ = recipe(training, Sharding.REPLICATED)
        updated = Updated(elements=tuple(map(prod, SHAPES)), shapes=SHAPES)
        ours = moments_of(numbers, [updated]).device_bytes
        off = abs(ours - _state_bytes(kernel, DTYPES[precision]))
        what = f"{optimizer.name.lower()}, {precision.name.lower()}"
        yield Row("optimizers", what, off, "bytes", "= 0", off == 0)


def _state_bytes(kernel: str, dtype: str) -> int:
    """Step a real optimizer once; counters of steps, one number each, are not counted."""
    torch: Any = importlib.import_module("torch")
    weights = [torch.nn.Parameter(torch.ones(s, dtype=getattr(torch, dtype))) for s in SHAPES]
    made = _MADE[kernel](torch.optim, weights)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    made.step()
    states = [value for state in made.state.values() for value in state.values()]
    tensors = [value for value in states if torch.is_tensor(value) and value.dim()]
    return sum(value.numel() * value.element_size() for value in tensors)


def _of_transformers(weights: list[Any]) -> Any:
    kind = importlib.import_module("transformers.optimization").Adafactor
    return kind(weights, scale_parameter=False, relative_step=False, lr=0.1)


SHAPES = ((3, 7), (11,), (2, 5, 4))
DTYPES = {Precision.FP32: "float32", Precision.BF16: "bfloat16"}
OPTIMIZERS = (
    (Optimizer.ADAMW, "adamw"),
    (Optimizer.ADAMW_FOREACH, "foreach"),
    (Optimizer.SGD, "sgd"),
    (Optimizer.SGD_MOMENTUM, "momentum"),
    (Optimizer.ADAFACTOR, "adafactor"),
    (Optimizer.ADAFACTOR_FP32, "adafactor of transformers"),
    (Optimizer.RMSPROP, "rmsprop"),
    (Optimizer.ADAGRAD, "adagrad"),
)
_MADE: dict[str, Callable[[Any, list[Any]], Any]] = {
    "adamw": lambda optim, weights: optim.AdamW(weights, foreach=False),
    "foreach": lambda optim, weights: optim.AdamW(weights, foreach=True),
    "sgd": lambda optim, weights: optim.SGD(weights, lr=0.1),
    "momentum": lambda optim, weights: optim.SGD(weights, lr=0.1, momentum=0.9),
    "adafactor": lambda optim, weights: optim.Adafactor(weights),
    "adafactor of transformers": lambda optim, weights: _of_transformers(weights),
    "rmsprop": lambda optim, weights: optim.RMSprop(weights),
    "adagrad": lambda optim, weights: optim.Adagrad(weights),
}
