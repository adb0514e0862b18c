"""The highest moments alone say what the whole timeline says of peak, phases and columns."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.run import (
    Attention,
    BlockAction,
    Document,
    DocumentFormat,
    Occasion,
    Optimizer,
    Recompute,
    Training,
)
from haversack_server.memory.model_run import model_run
from haversack_server.memory.schedule.choose import schedule_of
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.stretches import stretches_of
from haversack_server.memory.timeline import Timeline

HF = Path(__file__).parents[2] / "golden" / "hf"
CONFIGS = ("llama3_8b", "gpt2", "gemma2_2b", "mixtral_8x7b")
SPREADS = (
    Parallelism(),
    Parallelism(world_size=4),
    Parallelism(world_size=8, sharding=Sharding.ZERO_1),
    Parallelism(world_size=8, sharding=Sharding.ZERO_2),
    Parallelism(world_size=8, sharding=Sharding.ZERO_3),
    Parallelism(world_size=7, sharding=Sharding.ZERO_3, prefetch_units=0),
    Parallelism(world_size=6, sharding=Sharding.FSDP2),
    Parallelism(world_size=6, sharding=Sharding.FSDP2, reshard_after_forward=False),
    Parallelism(world_size=8, dp_replicate=2, sharding=Sharding.FSDP2),
    Parallelism(world_size=8, pp=4, sharding=Sharding.ZERO_1),
    Parallelism(world_size=4, pp=2, virtual_stages=3),
    Parallelism(world_size=8, pp=2, sharding=Sharding.FSDP2),
)
SOME = tuple(
    BlockAction(block=f"model.layers.{place}", option="recompute") for place in (0, 3, 4, 5, 9)
)
TRAININGS = (
    Training(microbatch=1, seq=256),
    Training(microbatch=2, seq=128, accumulation=5),
    Training(microbatch=1, seq=256, recompute=Recompute.FULL),
    Training(microbatch=1, seq=256, actions=SOME),
    Training(microbatch=1, seq=64, attention=Attention.EAGER, optimizer=Optimizer.ADAMW_FOREACH),
    Training(microbatch=1, seq=64, occasions=(Occasion.EVALUATION, Occasion.SAVING)),
)


def shown(line: Timeline) -> object:
    """What an answer without its timeline shows of it."""
    return line.peak, line.by_phase(), line.largest


@pytest.mark.parametrize("config", CONFIGS)
def test_nothing_that_decides_is_left_out(config: str) -> None:
    text = (HF / f"{config}.json").read_text()
    document = Document(format=DocumentFormat.HF_CONFIG, text=text)
    compared = 0
    for parallelism, training in itertools.product(SPREADS, TRAININGS):
        request = EstimateRequest(documents=(document,), training=training, parallelism=parallelism)
        try:
            run = model_run(request)
            wholes = run.rank_lines(training)
        except (InvalidRequestError, NotSupportedError):
            continue  # blocks of another name, stages of few layers
        assert run.only_height(training) in (None, wholes[0].peak_bytes)
        for whole, brief in zip(wholes, run.rank_lines(training, whole=False), strict=True):
            assert shown(brief.line) == shown(whole.line)
            assert set(brief.line.moments) <= set(whole.line.moments)
            compared += 1
    assert compared > len(SPREADS)


@pytest.mark.parametrize("parallelism", SPREADS, ids=str)
def test_what_a_schedule_lays_out_does_not_follow_from_activations(
    parallelism: Parallelism,
) -> None:
    text = json.dumps(json.loads((HF / "llama3_8b.json").read_text()) | {"num_hidden_layers": 8})
    document = Document(format=DocumentFormat.HF_CONFIG, text=text)
    known, fresh = (
        model_run(
            EstimateRequest(documents=(document,), training=training, parallelism=parallelism)
        ).stages[0]
        for training in (Training(seq=64), Training(seq=999, microbatch=3))
    )
    assert stretches_of(fresh) is stretches_of(known)
    alone = schedule_of(fresh)
    span = Span(start=0, stop=len(fresh.blocks), gradients_from=len(fresh.blocks))
    assert stretches_of(known).of(span, forward=True).stretches == tuple(alone.forward(span))
    assert stretches_of(known).of(span, forward=False).stretches == tuple(alone.backward(span))


def test_the_height_alone_is_that_of_the_one_class_of_ranks() -> None:
    text = json.dumps(json.loads((HF / "llama3_8b.json").read_text()) | {"num_hidden_layers": 4})
    document = Document(format=DocumentFormat.HF_CONFIG, text=text)
    run = EstimateRequest(documents=(document,), training=Training(seq=64))
    (ranks,) = model_run(run).rank_lines(run.training)
    assert model_run(run).only_height(run.training) == ranks.peak_bytes
    assert model_run(replace(run, parallelism=Parallelism(pp=2))).only_height(run.training) is None


def test_the_largest_of_a_column_is_the_largest_of_all_moments() -> None:
    text = json.dumps(json.loads((HF / "llama3_8b.json").read_text()) | {"num_hidden_layers": 3})
    request = EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
        training=TRAININGS[0],
        parallelism=Parallelism(world_size=4, sharding=Sharding.FSDP2),
    )
    (ranks,) = model_run(request).rank_lines(TRAININGS[0])
    columns = zip(*(moment.bytes_by_column for moment in ranks.line.moments), strict=True)
    assert ranks.line.largest == tuple(map(max, columns))


def test_a_model_of_many_layers_has_as_many_highest_moments_as_one_of_few() -> None:
    config = json.loads((HF / "llama3_8b.json").read_text())
    counts = []
    for layers in (4, 100):
        text = json.dumps(config | {"num_hidden_layers": layers})
        request = EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
            training=TRAININGS[0],
        )
        (ranks,) = model_run(request).rank_lines(TRAININGS[0], whole=False)
        counts.append(len(ranks.line.moments))
    assert counts[0] == counts[1]
