"""Pipelines against published formulas and arithmetic by hand: what is in flight, stage by stage.

The layer is that of arXiv 2205.05198 (kernel profile paper-2205.05198, GPT-2 with dropout, separate
attention operations): s b h (34 + 5 a s / h) bytes on one tensor-parallel rank.
"""

from dataclasses import replace

import pytest

from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateRequest, RankClass
from haversack.parallelism import Parallelism, PipelineSchedule
from haversack.run import Attention, Document, DocumentFormat, Recompute, Training
from haversack_server.estimate.answer import estimate

S, B, H, A, L, V = 64, 2, 32, 4, 8, 96  # seq, microbatch, hidden, heads, layers, vocabulary
GPT2 = Document(
    format=DocumentFormat.HF_CONFIG,
    text=f"""{{"model_type": "gpt2", "n_embd": {H}, "n_layer": {L}, "n_head": {A},
    "n_positions": {S}, "vocab_size": {V}, "activation_function": "gelu", "attn_pdrop": 0.1,
    "resid_pdrop": 0.1, "embd_pdrop": 0.1, "tie_word_embeddings": true}}""",
)
STREAM = 2 * S * B * H
LAYER = 34 * S * B * H + 5 * A * S * S * B
SHARED = S * 8 + B * S * S * 2  # position ids, and the mask that a stage makes for its layers
WEIGHTS = 12 * H * H + 13 * H  # of a layer: 12 h^2, biases and two norms


def answer(training: Training | None = None, **axes: object) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(GPT2,),
            training=training or steps(8),
            parallelism=Parallelism(**axes),  # type: ignore[arg-type]
            kernel_profile="paper-2205.05198",
        )
    )


def steps(microbatches: int, **settings: object) -> Training:
    plain = Training(microbatch=B, seq=S, accumulation=microbatches, attention=Attention.EAGER)
    return replace(plain, **settings)  # type: ignore[arg-type]


def in_flight(found: Estimate) -> int:
    """Bytes of other microbatches on the fullest stage, at their highest."""
    return next(
        (term.largest_bytes for term in found.terms if term.name == "microbatches in flight"), 0
    )


def expected(ranks: RankClass) -> int:
    assert ranks.peak is not None
    return ranks.peak.allocated.expected_bytes


def test_stage_0_holds_as_many_layers_as_the_model_has_whatever_the_stages() -> None:
    """arXiv 2205.05198, section 4.2.3: P microbatches of L / P layers each on the first stage."""
    embedding = in_flight(answer(pp=2)) - (2 - 1) * (L // 2) * LAYER
    for stages in (2, 4, 8):
        found = answer(pp=stages)
        assert found.peak_rank == 0
        layers = (stages - 1) * (L // stages) * LAYER
        assert in_flight(found) == layers + (stages - 1) * embedding


@pytest.mark.parametrize(("microbatches", "held"), [(1, 1), (2, 2), (3, 3), (8, 3)])
def test_a_middle_stage_by_hand(microbatches: int, held: int) -> None:
    """Stage 1 of 4 has min(4 - 1, M) microbatches of two layers, each with what it received."""
    found = answer(steps(microbatches), pp=4, stage_layers=(1, 5, 1, 1))
    assert found.peak_rank == 1  # one rank to a stage
    kept = 5 * LAYER + STREAM + SHARED
    assert in_flight(found) == (held - 1) * kept


def test_steady_bytes_of_a_stage_are_those_of_its_layers() -> None:
    classes = answer(pp=4).ranks
    assert [each.name for each in classes] == ["stage 0", "stage 1", "stage 2", "stage 3"]
    states = 2 + 2 + 12  # bytes for each parameter
    layers = [2 * WEIGHTS * states] * 4
    ends = [(V + S) * H * states, 0, 0, (V * H + 2 * H) * states]
    assert [each.steady_bytes for each in classes] == [
        layer + end for layer, end in zip(layers, ends, strict=True)
    ]


def test_gpipe_holds_all_microbatches_of_a_step() -> None:
    one_f_one_b = answer(pp=2, stage_layers=(7, 1))
    all_first = answer(pp=2, stage_layers=(7, 1), pipeline_schedule=PipelineSchedule.GPIPE)
    assert in_flight(all_first) == 7 * in_flight(one_f_one_b)


def test_full_recompute_keeps_one_stream_for_each_layer_in_flight() -> None:
    found = answer(steps(8, recompute=Recompute.FULL), pp=4, stage_layers=(1, 5, 1, 1))
    assert found.peak_rank == 1
    assert in_flight(found) == 2 * (5 * STREAM + STREAM + SHARED)


def test_selective_recompute_keeps_no_scores_in_flight() -> None:
    """arXiv 2205.05198, table 2: 34 s b h is left of a layer."""
    found = answer(steps(8, recompute=Recompute.SELECTIVE), pp=4, stage_layers=(1, 5, 1, 1))
    assert in_flight(found) == 2 * (5 * 34 * S * B * H + STREAM + SHARED)


def test_tensor_and_sequence_parallelism_divide_what_is_in_flight() -> None:
    """34 s b h / t: every part of a layer is divided, and what is received too."""
    given = steps(8, recompute=Recompute.SELECTIVE)
    found = answer(given, pp=4, tp=2, sequence_parallel=True, stage_layers=(1, 5, 1, 1))
    assert in_flight(found) == 2 * (5 * 34 * S * B * H // 2 + STREAM // 2 + SHARED)


def test_the_fullest_stage_is_the_answer_and_the_others_are_below() -> None:
    found = answer(pp=4)
    assert found.peak is not None
    peaks = [expected(each) for each in found.ranks]
    assert max(peaks) == found.peak.allocated.expected_bytes
    assert peaks[:3] == sorted(peaks[:3], reverse=True)
    assert len(set(peaks)) == 4


def test_more_microbatches_in_flight_than_can_be_written_are_refused() -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        answer(
            steps(2**31, microbatch=2**14),
            pp=2,
            pipeline_schedule=PipelineSchedule.GPIPE,
        )
    assert wrong.value.field == "training.accumulation"


def test_what_is_in_flight_says_how_much_and_why() -> None:
    term = next(each for each in answer(pp=4).terms if each.name == "microbatches in flight")
    assert "stage = 0 of 4" in term.inputs
    assert "microbatches in flight = 4" in term.inputs
    assert "stages after this one" in term.scales_with
    assert term.sharded_over == ()  # it does not shrink with more GPUs
    assert "arXiv 2104.04473" in term.source


def test_a_runs_ends_are_the_highest_of_its_classes() -> None:
    """With flash the head's stage is fullest; with eager the first, by what it has in flight."""
    text = GPT2.text.replace(f'"n_positions": {S}', '"n_positions": 512').replace("96", "1000")
    found = estimate(
        EstimateRequest(
            documents=(replace(GPT2, text=text),),
            training=steps(8, seq=512, attention=Attention.UNKNOWN),
            parallelism=Parallelism(pp=2),
            kernel_profile="paper-2205.05198",
        )
    )
    first, last = (each.peak for each in found.ranks)
    assert found.peak is not None
    assert first is not None
    assert last is not None
    assert found.peak_rank == 1
    assert found.peak.allocated.expected_bytes == last.allocated.expected_bytes
    assert first.device.high_bytes > last.device.high_bytes
    assert found.peak.device.high_bytes == first.device.high_bytes
