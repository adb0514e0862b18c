"""Searches over sizes: right also where memory is not monotone, and told how far they went."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack.estimate import Estimate, EstimateRequest, EstimateVerdict
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Device, Document, DocumentFormat, Training
from haversack.units import GIB, MIB
from haversack_server.estimate.answer import estimate
from haversack_server.estimate.searches import NEIGHBOURS, largest, smallest

HF = Path(__file__).parents[2] / "golden" / "hf"
SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": false}""",
)
GPT2 = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000,
    "n_positions": 512}""",
)
BASE = EstimateRequest(
    documents=(SMALL,),
    training=Training(microbatch=2, seq=128),
    parallelism=Parallelism(world_size=4, sharding=Sharding.FSDP2),
)


def asked(request: EstimateRequest, memory_bytes: int | None, *names: EstimateQuestion) -> Estimate:
    device = Device(memory_bytes=memory_bytes)
    return estimate(replace(request, device=device, questions=names))


def verdict(request: EstimateRequest, memory_bytes: int) -> EstimateVerdict:
    return asked(request, memory_bytes, EstimateQuestion.BRIEF).verdict


@given(st.integers(0, 300), st.integers(1, 300))
def test_a_monotone_limit_is_found(limit: int, most: int) -> None:
    assert largest(lambda size: size <= limit, most) == min(limit, most)


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_monotone_start_is_found(start: int, most: int) -> None:
    assert smallest(lambda size: size >= start, most) == (start if start <= most else None)


@given(st.integers(1, 200), st.integers(1, NEIGHBOURS - 1))
def test_a_dent_near_the_limit_does_not_hide_it(limit: int, dent: int) -> None:
    hole = set(range(max(2, limit - dent), limit))
    assert largest(lambda size: size <= limit and size not in hole, 400) == limit


@given(st.integers(1, 200), st.integers(2, NEIGHBOURS))
def test_a_dent_near_the_start_does_not_hide_it(start: int, gap: int) -> None:
    hole = range(start + 1, start + gap)
    assert smallest(lambda size: size >= start and size not in hole, 400) == start


def test_a_rung_that_fails_does_not_end_the_ladder() -> None:
    assert largest(lambda size: size <= 100 and size != 32, 400) == 100


def test_nothing_fits() -> None:
    assert largest(lambda size: False, 4096) == 0
    assert smallest(lambda size: False, 4096) is None


@pytest.mark.parametrize(
    ("question", "field", "build"),
    [
        (
            EstimateQuestion.MAX_MICROBATCH,
            "max_microbatch",
            lambda size: replace(BASE, training=Training(microbatch=size, seq=128)),
        ),
        (
            EstimateQuestion.MAX_SEQ,
            "max_seq",
            lambda size: replace(BASE, training=Training(microbatch=2, seq=size)),
        ),
    ],
    ids=["microbatch", "seq"],
)
def test_what_is_found_fits_and_its_neighbours_above_do_not(
    question: EstimateQuestion, field: str, build: Callable[[int], EstimateRequest]
) -> None:
    memory = 2 * GIB
    found = getattr(asked(BASE, memory, question), field)
    assert verdict(build(found), memory) is EstimateVerdict.FITS
    for beyond in range(1, NEIGHBOURS + 1):
        assert verdict(build(found + beyond), memory) is not EstimateVerdict.FITS


def test_the_fewest_gpus_are_the_fewest_of_all() -> None:
    request = replace(BASE, training=Training(microbatch=1, seq=64))
    peaks = {
        ranks: asked(
            replace(request, parallelism=Parallelism(world_size=ranks, sharding=Sharding.FSDP2)),
            None,
            EstimateQuestion.BRIEF,
        ).peak
        for ranks in range(1, 13)
    }
    high = {ranks: peak.device.high_bytes for ranks, peak in peaks.items() if peak}
    for memory in (high[5], high[7], high[11]):
        fewest = min(ranks for ranks, size in high.items() if size <= memory)
        assert asked(request, memory, EstimateQuestion.MIN_GPUS).min_gpus == fewest


def test_gpus_come_in_groups_of_the_degrees_that_are_given() -> None:
    request = replace(BASE, parallelism=Parallelism(world_size=4, tp=2, sharding=Sharding.FSDP2))
    found = asked(request, 3 * GIB, EstimateQuestion.MIN_GPUS).min_gpus
    assert found
    assert found % 2 == 0


def test_gpus_are_searched_where_an_axis_needs_more_than_one_group() -> None:
    moe = json.loads((HF / "mixtral_8x7b.json").read_text()) | {"num_hidden_layers": 2}
    request = EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(moe)),),
        training=Training(seq=128),
        parallelism=Parallelism(world_size=16, pp=2, ep=8, sharding=Sharding.ZERO_1),
    )
    found = asked(request, 80 * GIB, EstimateQuestion.MIN_GPUS).min_gpus
    assert found is not None
    assert found % 16 == 0  # eight data ranks on each of two stages, at least


def test_every_search_says_how_far_it_went() -> None:
    every = asked(
        BASE,
        2 * GIB,
        EstimateQuestion.MIN_GPUS,
        EstimateQuestion.MAX_MICROBATCH,
        EstimateQuestion.MAX_SEQ,
    )
    assert [each.split(":")[0] for each in every.searches] == [
        "fewest GPUs",
        "largest microbatch",
        "longest sequence",
    ]
    assert "1,048,576 tokens" in every.searches[2]


def test_learned_positions_end_the_search_for_a_sequence() -> None:
    found = asked(
        EstimateRequest(documents=(GPT2,), training=Training(seq=64)),
        80 * GIB,
        EstimateQuestion.MAX_SEQ,
    )
    assert found.max_seq == 512
    assert "to 512 tokens" in found.searches[0]


def test_without_a_limit_nothing_is_searched_and_it_says_so() -> None:
    found = asked(BASE, None, EstimateQuestion.MAX_SEQ)
    assert found.max_seq is None
    assert "give the device's memory" in found.searches[0]


def test_the_brief_answer_has_nothing_beside_its_ledger() -> None:
    brief = asked(BASE, 2 * GIB, EstimateQuestion.BRIEF)
    whole = asked(BASE, 2 * GIB)
    assert not brief.timeline
    assert not brief.advice
    assert brief.min_gpus is None
    assert brief.max_microbatch is None
    stripped = replace(
        whole,
        timeline=(),
        advice=(),
        evidence=(),
        min_gpus=None,
        max_microbatch=None,
        searches=(),
    )
    assert stripped == brief
    assert whole.timeline
    assert whole.advice


def test_a_question_that_a_subject_cannot_answer_is_named() -> None:
    counted = EstimateRequest(
        parameter_count=10**9, questions=(EstimateQuestion.MAX_SEQ, EstimateQuestion.TIMELINE)
    )
    assert (
        "questions: MAX_SEQ needs a described model (documents)" in estimate(counted).ignored_inputs
    )


def test_memory_below_any_run_fits_nothing() -> None:
    found = asked(BASE, 100 * MIB, EstimateQuestion.MAX_MICROBATCH, EstimateQuestion.MIN_GPUS)
    assert (found.max_microbatch, found.min_gpus) == (0, None)
