"""What holds of every estimate: sums, signs, order, and that equal questions have equal answers."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haversack.estimate import Estimate, EstimateRequest, TermCategory
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Attention, Device, Document, DocumentFormat, Recompute, Training
from haversack.wire import message_of
from haversack_server.estimate.answer import estimate

SHARDED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3, Sharding.FSDP2)
WIDE = ("TIMELINE", "ADVICE", "MIN_GPUS", "MAX_MICROBATCH", "KNOBS", "COLLECTIVES")
QUICK = settings(max_examples=25, deadline=None)


def config(layers: int = 4, experts: int = 0) -> Document:
    made: dict[str, object] = {
        "model_type": "mixtral" if experts else "llama",
        "hidden_size": 256,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "intermediate_size": 512,
        "vocab_size": 1024,
        "tie_word_embeddings": False,
    }
    if experts:
        made |= {"num_local_experts": experts, "num_experts_per_tok": 2}
    return Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(made))


@st.composite
def requests(draw: st.DrawFn) -> EstimateRequest:
    tp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    training = Training(
        microbatch=draw(st.integers(1, 3)),
        seq=draw(st.sampled_from([64, 96, 256])),
        accumulation=draw(st.sampled_from([1, 4])),
        attention=draw(st.sampled_from([Attention.FLASH, Attention.EAGER])),
        recompute=draw(st.sampled_from([Recompute.NONE, Recompute.FULL, Recompute.SELECTIVE])),
    )
    parallelism = Parallelism(
        world_size=8 * tp * pp,
        tp=tp,
        pp=pp,
        sharding=draw(st.sampled_from(SHARDED)),
    )
    return EstimateRequest(
        documents=(config(),),
        training=training,
        parallelism=parallelism,
        questions=(EstimateQuestion.TIMELINE,),
    )


def allocated(answer: Estimate) -> int:
    assert answer.peak is not None
    return answer.peak.allocated.expected_bytes


@QUICK
@given(requests())
def test_terms_sum_to_the_peak_and_every_moment_to_its_own(request: EstimateRequest) -> None:
    answer = estimate(request)
    inside = [term for term in answer.terms if term.category is not TermCategory.OUTSIDE]
    assert sum(term.bytes for term in inside) == allocated(answer)
    for moment in answer.timeline:
        assert sum(moment.term_bytes) == moment.allocated_bytes
    assert max(moment.allocated_bytes for moment in answer.timeline) == allocated(answer)


@QUICK
@given(requests())
def test_no_term_is_negative_and_ends_are_in_order(request: EstimateRequest) -> None:
    answer = estimate(request)
    assert all(each >= 0 for moment in answer.timeline for each in moment.term_bytes)
    assert all(term.largest_bytes >= term.bytes >= 0 for term in answer.terms)
    assert answer.peak is not None
    for found in (answer.peak.allocated, answer.peak.reserved, answer.peak.device):
        assert 0 <= found.low_bytes <= found.expected_bytes <= found.high_bytes


@QUICK
@given(requests())
def test_the_peak_is_that_of_the_fullest_rank(request: EstimateRequest) -> None:
    answer = estimate(request)
    found = [each.peak.allocated.expected_bytes for each in answer.ranks if each.peak]
    assert allocated(answer) == max(found) >= mean(found)
    assert sum(each.rank_count for each in answer.ranks) == request.parallelism.world_size


@settings(max_examples=10, deadline=None)
@given(requests())
def test_equal_questions_have_equal_answers(request: EstimateRequest) -> None:
    assert estimate(request) == estimate(replace(request))


ANSWER_BYTES = """
import sys
from haversack.estimate import EstimateRequest
from haversack.v1 import estimate_pb2
from haversack.wire import from_message, message_of
from haversack_server.estimate.answer import estimate
given = estimate_pb2.EstimateRequest.FromString(sys.stdin.buffer.read())
request = from_message(EstimateRequest, given)
sys.stdout.buffer.write(message_of(estimate(request)).SerializeToString())
"""


def test_equal_questions_have_equal_bytes_whatever_the_process_hashes_with() -> None:
    asked = EstimateRequest(
        documents=(config(experts=4),),
        training=Training(microbatch=2, seq=64),
        parallelism=Parallelism(world_size=8, ep=2, sharding=Sharding.ZERO_1),
        device=Device(memory_bytes=2**33),
        questions=tuple(each for each in EstimateQuestion if each.name in WIDE),
    )
    sent = message_of(asked).SerializeToString()

    def of_process(seed: str) -> bytes:
        given = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = [sys.executable, "-c", ANSWER_BYTES]
        return subprocess.run(run, input=sent, env=given, check=True, capture_output=True).stdout

    here = message_of(estimate(asked)).SerializeToString()
    assert len(here) > 1000
    assert of_process("1") == of_process("2") == here


@QUICK
@given(requests(), st.sampled_from([0, 4]))
def test_a_larger_microbatch_never_needs_less(request: EstimateRequest, experts: int) -> None:
    """The search for the largest one stops at the first that fails."""

    def at(microbatch: int) -> tuple[int, int]:
        training = replace(request.training, microbatch=microbatch)
        run = replace(request, documents=(config(experts=experts),), training=training)
        peak = estimate(replace(run, questions=(EstimateQuestion.BRIEF,))).peak
        assert peak is not None
        return peak.allocated.high_bytes, peak.device.high_bytes

    found = [at(microbatch) for microbatch in range(1, 6)]
    assert found == sorted(found)


@pytest.mark.parametrize("sharding", SHARDED)
def test_more_ranks_never_need_more(sharding: Sharding) -> None:
    def on(ranks: int) -> int:
        parallelism = Parallelism(world_size=ranks, sharding=sharding)
        training = Training(microbatch=1, seq=64)
        request = EstimateRequest(documents=(config(),), training=training, parallelism=parallelism)
        return allocated(estimate(request))

    peaks = [on(ranks) for ranks in (2, 4, 8, 16, 32)]
    assert peaks == sorted(peaks, reverse=True)


def test_a_higher_stage_never_keeps_more_states() -> None:
    def under(sharding: Sharding) -> int:
        parallelism = Parallelism(world_size=8, sharding=sharding)
        training = Training(microbatch=1, seq=64)
        request = EstimateRequest(documents=(config(),), training=training, parallelism=parallelism)
        return estimate(request).steady_bytes

    states = [under(stage) for stage in SHARDED[:3]]
    assert states == sorted(states, reverse=True)
    assert len(set(states)) == 3


def test_expert_parallelism_moves_tokens_and_removes_none() -> None:
    def saved(ep: int) -> int:
        request = EstimateRequest(
            documents=(config(experts=8),),
            training=Training(microbatch=1, seq=128),
            parallelism=Parallelism(world_size=8, ep=ep, sharding=Sharding.ZERO_1),
        )
        terms = {term.name: term.largest_bytes for term in estimate(request).terms}
        return terms["saved activations"]

    assert saved(1) <= saved(2) <= saved(4)
