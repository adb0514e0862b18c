"""What holds for every division of a model over ranks, whatever the sizes."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateRequest, TermCategory
from haversack.parallelism import ContextParallel, Parallelism, Sharding
from haversack.run import Attention, Document, DocumentFormat, Loss, Recompute, Training
from haversack_server.estimate.answer import estimate

DENSE = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
"vocab_size": 512, "tie_word_embeddings": true}"""
ROUTED = """{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
"vocab_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2,
"tie_word_embeddings": false}"""


@st.composite
def degrees(draw: st.DrawFn) -> Parallelism:
    tp, cp, pp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    several = pp > 1 and draw(st.booleans())
    return Parallelism(
        world_size=tp * cp * pp * draw(st.sampled_from([1, 2, 4])),
        tp=tp,
        cp=cp,
        pp=pp,
        ep=draw(st.sampled_from([1, 2, 4])),
        expert_tp=draw(st.sampled_from([None, 1])),
        virtual_stages=2 if several else None,
        sequence_parallel=draw(st.booleans()),
        sharding=draw(st.sampled_from([each for each in Sharding if each])),
        context_parallel=draw(st.sampled_from([each for each in ContextParallel if each])),
    )


def training(draw: st.DrawFn) -> Training:
    return Training(
        microbatch=draw(st.integers(1, 3)),
        seq=draw(st.sampled_from([64, 128])),
        accumulation=draw(st.integers(1, 9)),
        recompute=draw(st.sampled_from([each for each in Recompute if each])),
        loss=draw(st.sampled_from(list(Loss))),
    )


@st.composite
def requests(draw: st.DrawFn) -> EstimateRequest:
    try:
        parallelism = draw(degrees())
    except InvalidRequestError:
        assume(False)
        raise
    text = draw(st.sampled_from([DENSE, ROUTED]))
    if text is DENSE:
        parallelism = replace(parallelism, ep=1)
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
        training=training(draw),
        parallelism=parallelism,
    )


def answered(request: EstimateRequest) -> Estimate:
    """Answer, or drop what this model cannot be divided into."""
    try:
        found = estimate(request)
    except InvalidRequestError:
        assume(False)
        raise
    assume(found.peak is not None)
    return found


@given(requests())
@settings(max_examples=60, deadline=None)
def test_ranks_are_whole_and_terms_are_sums(request_: EstimateRequest) -> None:
    found = answered(request_)
    assert found.peak is not None
    world = request_.parallelism.world_size
    assert sum(each.rank_count for each in found.ranks) == world
    assert [each.first_rank for each in found.ranks] == sorted(
        {each.first_rank for each in found.ranks}
    )
    peaks = {
        each.first_rank: each.peak.allocated.expected_bytes
        for each in found.ranks
        if each.peak is not None
    }
    expected = found.peak.allocated.expected_bytes
    assert max(peaks.values()) == expected == peaks[found.peak_rank]
    mean = sum(peaks[each.first_rank] * each.rank_count for each in found.ranks) / (world or 1)
    assert expected >= mean
    for moment in found.timeline:
        assert min(moment.term_bytes) >= 0
        assert sum(moment.term_bytes) == moment.allocated_bytes
    inside = [term.bytes for term in found.terms if term.category is not TermCategory.OUTSIDE]
    assert sum(inside) == expected
    assert found == estimate(request_)


def peak_of(text: str, training: Training, **axes: object) -> int:
    found = estimate(
        EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
            training=training,
            parallelism=Parallelism(**axes),  # type: ignore[arg-type]
        )
    )
    assert found.peak is not None
    return found.peak.allocated.expected_bytes


def activations(found: Estimate) -> int:
    kinds = (TermCategory.ACTIVATION, TermCategory.TRANSIENT)
    names = {"saved activations", "running block", "logits and loss", "microbatches in flight"}
    return sum(each.bytes for each in found.terms if each.category in kinds and each.name in names)


@given(pp=st.sampled_from([1, 2]), accumulation=st.integers(1, 6), microbatch=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_activations_do_not_shrink_with_ep(pp: int, accumulation: int, microbatch: int) -> None:
    held = []
    for ep in (1, 2, 4, 8):
        request = EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=ROUTED),),
            training=Training(microbatch=microbatch, seq=64, accumulation=accumulation),
            parallelism=Parallelism(world_size=16, pp=pp, ep=ep, sharding=Sharding.ZERO_1),
        )
        held.append(activations(estimate(request)))
    assert held == sorted(held)


@given(cp=st.sampled_from([1, 2, 4]), accumulation=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_more_ranks_that_shard_never_raise_the_peak(cp: int, accumulation: int) -> None:
    given_ = Training(microbatch=1, seq=64, accumulation=accumulation)
    for sharding in (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3):
        peaks = [
            peak_of(DENSE, given_, world_size=ranks * cp, cp=cp, sharding=sharding)
            for ranks in (2, 4, 8, 16)
        ]
        assert peaks == sorted(peaks, reverse=True)


@given(stages=st.sampled_from([2, 4]), accumulation=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_more_microbatches_never_lower_the_peak(stages: int, accumulation: int) -> None:
    fewer, more = (
        peak_of(DENSE, Training(microbatch=1, seq=64, accumulation=each), pp=stages)
        for each in (accumulation, accumulation + 1)
    )
    assert more >= fewer


def test_an_attention_that_is_not_known_spans_both() -> None:
    def interval(attention: Attention) -> tuple[int, int, int]:
        found = estimate(
            EstimateRequest(
                documents=(Document(format=DocumentFormat.HF_CONFIG, text=DENSE),),
                training=Training(microbatch=1, seq=512, attention=attention),
                parallelism=Parallelism(pp=2, tp=2),
            )
        )
        assert found.peak is not None
        allocated = found.peak.allocated
        return allocated.low_bytes, allocated.expected_bytes, allocated.high_bytes

    flash, eager = interval(Attention.FLASH), interval(Attention.EAGER)
    assert interval(Attention.UNKNOWN) == (flash[0], flash[1], eager[2])
    assert eager[2] > flash[2]


def test_one_pipeline_stage_is_what_no_pipeline_is() -> None:
    for sharding in (Sharding.REPLICATED, Sharding.FSDP2):
        request = EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=DENSE),),
            training=Training(microbatch=2, seq=64, accumulation=3),
            parallelism=Parallelism(world_size=4, sharding=sharding),
        )
        one = Parallelism(world_size=4, sharding=sharding, pp=1, cp=1, ep=1, virtual_stages=1)
        plain = estimate(request)
        staged = estimate(
            EstimateRequest(documents=request.documents, training=request.training, parallelism=one)
        )
        assert (staged.timeline, staged.terms, staged.ranks) == (
            plain.timeline,
            plain.terms,
            plain.ranks,
        )
