"""Optimizer state by hand: every form, flat and in shards; formula rows of bitsandbytes."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack.parallelism import Parallelism, Sharding
from haversack.run import Optimizer, OptimizerKernel, Precision, Training
from haversack_server.memory.architecture import Parameter, Unit, UnitKind
from haversack_server.memory.degrees import resolve
from haversack_server.memory.optimizers.kinds import KINDS, kernel_of
from haversack_server.memory.optimizers.state import Moments, moments_of
from haversack_server.memory.optimizers.temporaries import temporary_bytes
from haversack_server.memory.optimizers.tensors import Updated
from haversack_server.memory.recipe import Recipe, recipe
from haversack_server.memory.states import architecture_units, rank_states

SHAPES = ((64, 100), (100,), (300, 500))
SIZES = tuple(prod(shape) for shape in SHAPES)
LAYER = Updated(elements=SIZES, shapes=SHAPES, of_layer=True)
TABLE = Updated(elements=(5_000,), shapes=((50, 100),))
MAPS = 1_024  # one table of 256 fp32 values for each moment


def numbers(optimizer: Optimizer, precision: Precision = Precision.BF16) -> Recipe:
    return recipe(Training(optimizer=optimizer, precision=precision), Sharding.REPLICATED)[0]


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (Optimizer.ADAMW, Moments(2 * 2 * sum(SIZES))),
        (Optimizer.SGD, Moments(0)),
        (Optimizer.SGD_MOMENTUM, Moments(2 * sum(SIZES))),
        (Optimizer.ADAFACTOR, Moments(2 * (164 + 100 + 800))),
        (Optimizer.ADAFACTOR_FP32, Moments(4 * (164 + 100 + 800))),
        (Optimizer.MUON, Moments(2 * (sum(SIZES) + 100))),
        (Optimizer.LION, Moments(4 * sum(SIZES))),
        # 6,400 numbers have 25 scales, 150,000 have 586; 100 numbers keep fp32.
        (Optimizer.LION_8BIT, Moments(156_400 + 4 * (25 + 586) + 4 * 100 + MAPS)),
        (Optimizer.ADAMW_8BIT, Moments(2 * (156_400 + 4 * (25 + 586) + 4 * 100 + MAPS))),
        (Optimizer.PAGED_ADAMW, Moments(2 * 4 * 6_500, 2 * 4 * 150_000)),
        (
            Optimizer.PAGED_ADAMW_8BIT,
            Moments(2 * (6_400 + 4 * (25 + 586) + 4 * 100 + MAPS), 2 * 150_000),
        ),
    ],
)
def test_state_of_a_layer_s_tensors(optimizer: Optimizer, expected: Moments) -> None:
    assert moments_of(numbers(optimizer), [LAYER]) == expected


def test_muon_leaves_what_is_no_layer_to_adamw() -> None:
    assert moments_of(numbers(Optimizer.MUON), [TABLE]) == Moments(2 * 2 * 5_000)


def test_a_flat_shard_has_neither_rows_nor_columns() -> None:
    flat = replace(LAYER, flat=sum(SIZES) // 2)
    for optimizer in (Optimizer.ADAFACTOR, Optimizer.ADAFACTOR_FP32):
        recipe_of = numbers(optimizer)
        assert moments_of(recipe_of, [flat]) == Moments(recipe_of.moment * (sum(SIZES) // 2))


def test_flat_tensors_of_a_rank_are_one_and_those_of_units_are_not() -> None:
    of_units = [Updated(elements=(3_000,), flat=3_000)] * 2
    of_rank = [replace(each, joins_rank=True) for each in of_units]
    quantized = numbers(Optimizer.LION_8BIT)
    assert moments_of(quantized, of_units) == Moments(4 * 6_000)
    assert moments_of(quantized, of_rank) == Moments(6_000 + 4 * 24 + MAPS)


UNITS = (
    Unit("embedding", UnitKind.EMBEDDING, (Parameter("table", (1_000, 64)),)),
    Unit("layer", UnitKind.LAYER, (Parameter("a", (640, 64)), Parameter("b", (64,)))),
    Unit("head", UnitKind.HEAD, (Parameter("norm", (64,)), Parameter("head", (1_000, 64)))),
)
ANYWHERE = [
    each for each in Sharding if each is not Sharding.UNSPECIFIED and each is not Sharding.FSDP2
]


@given(
    optimizer=st.sampled_from(list(KINDS)),
    sharding=st.sampled_from([*ANYWHERE, Sharding.FSDP2]),
    ranks=st.sampled_from([1, 2, 4, 8]),
    precision=st.sampled_from([Precision.BF16, Precision.FP32, Precision.BF16_FP32_MASTER]),
)
def test_shards_are_no_more_than_the_whole_and_sum_to_it(
    optimizer: Optimizer, sharding: Sharding, ranks: int, precision: Precision
) -> None:
    training = Training(optimizer=optimizer, precision=precision)

    def device_and_paged(count: int) -> int:
        degrees = resolve(Parallelism(world_size=count, sharding=sharding))
        units = architecture_units(UNITS, degrees)
        states = rank_states(units, recipe(training, sharding)[0], degrees)
        assert min(states.moment_bytes, states.temporary_bytes, states.host.total_bytes) >= 0
        return states.moment_bytes + states.host.paged_bytes

    whole, shard = device_and_paged(1), device_and_paged(ranks)
    tables = 2 * MAPS  # every rank has its own, and small shards keep fp32
    assert shard <= whole + tables
    if not KINDS[optimizer].needs_shapes:
        assert shard * ranks >= (whole - tables if KINDS[optimizer].width else whole)


def test_a_kernel_that_an_optimizer_has_not_is_its_default_and_said_so() -> None:
    given = Training(optimizer=Optimizer.ADAFACTOR, optimizer_kernel=OptimizerKernel.FUSED)
    made, said = recipe(given, Sharding.REPLICATED)
    assert made.optimizer_kernel is OptimizerKernel.FOR_LOOP
    assert "kernel: FOR_LOOP, since ADAFACTOR has no FUSED one" in said
    asked = OptimizerKernel.FOREACH
    assert kernel_of(Optimizer.ADAFACTOR, asked) is asked
    _, unsaid = recipe(Training(optimizer=Optimizer.ADAFACTOR), Sharding.REPLICATED)
    assert not any(sentence.startswith("kernel") for sentence in unsaid)


@pytest.mark.parametrize(
    ("optimizer", "kernel", "elements"),
    [
        (Optimizer.ADAFACTOR, OptimizerKernel.FOR_LOOP, 100 + 150_000),
        (Optimizer.ADAFACTOR, OptimizerKernel.FOREACH, sum(SIZES)),
        (Optimizer.RMSPROP, OptimizerKernel.FOREACH, sum(SIZES)),
        (Optimizer.ADAGRAD, OptimizerKernel.FOREACH, 2 * sum(SIZES)),
        (Optimizer.SGD_MOMENTUM, OptimizerKernel.FOREACH, 0),
        (Optimizer.ADAMW_8BIT, OptimizerKernel.FUSED, 0),
        # fp32 gradient and parameter, a square and its sum, and what is left of the one before.
        (Optimizer.ADAFACTOR_FP32, OptimizerKernel.FOR_LOOP, 2 * (100 + 4 * 150_000)),
        # The update, two matrices of bf16 beside it, and two squares.
        (Optimizer.MUON, OptimizerKernel.FUSED, 3 * 150_000 + 2 * 300 * 300),
    ],
)
def test_temporaries_in_numbers_of_bf16(
    optimizer: Optimizer, kernel: OptimizerKernel, elements: int
) -> None:
    made = replace(numbers(optimizer), optimizer_kernel=kernel)
    assert temporary_bytes(made, [LAYER]) == 2 * elements


def test_precisions_with_a_master_copy_have_states_in_fp32() -> None:
    made = numbers(Optimizer.ADAFACTOR, Precision.BF16_FP32_MASTER)
    assert made.formula == "2 + 2 + 4 + state of ADAFACTOR"
    assert moments_of(made, [LAYER]) == Moments(4 * (164 + 100 + 800))
    assert numbers(Optimizer.LION, Precision.BF16).formula == "2 + 2 + 4"
