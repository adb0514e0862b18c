"""A described model on the timeline: ledger, verdict, advice, and what bad settings are told."""

from dataclasses import replace

import pytest

from haversack.errors import CallCancelledError, InvalidRequestError, NotSupportedError
from haversack.estimate import Estimate, EstimateRequest, EstimateVerdict, TermCategory, WhatIf
from haversack.parallelism import Parallelism, Sharding
from haversack.run import (
    Attention,
    BlockAction,
    Budget,
    BytesKind,
    Device,
    Document,
    DocumentFormat,
    Occasion,
    Optimizer,
    Recompute,
    Training,
    WorkloadReference,
)
from haversack.units import GIB
from haversack_server.estimate.answer import estimate

SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": false}""",
)


def answer(
    training: Training | None = None,
    parallelism: Parallelism | None = None,
    memory_bytes: int | None = None,
    **fields: object,
) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(SMALL,),
            training=training or Training(microbatch=2, seq=128),
            parallelism=parallelism or Parallelism(),
            device=Device(memory_bytes=memory_bytes),
            **fields,  # type: ignore[arg-type]
        )
    )


def test_an_answer_names_the_occasions_that_it_has_no_moments_of() -> None:
    training = Training(microbatch=2, seq=128, occasions=(Occasion.SAVING,))
    assert answer(training).not_modelled[-1].endswith(": evaluation, loading")
    every = replace(training, occasions=(Occasion.EVALUATION, Occasion.SAVING, Occasion.LOADING))
    assert not any("occasions" in sentence for sentence in answer(every).not_modelled)


def expected(found: Estimate) -> int:
    assert found.peak is not None
    return found.peak.allocated.expected_bytes


def test_terms_sum_to_the_peak_and_to_every_moment() -> None:
    found = answer()
    inside = [term for term in found.terms if term.category is not TermCategory.OUTSIDE]
    assert sum(term.bytes for term in inside) == expected(found)
    for moment in found.timeline:
        assert len(moment.term_bytes) == len(found.terms)
        assert sum(moment.term_bytes) == moment.allocated_bytes
        assert min(moment.term_bytes) >= 0
    assert max(phase.peak_bytes for phase in found.phases) == expected(found)


def test_every_term_says_what_it_is_made_of() -> None:
    sharded = Parallelism(world_size=8, sharding=Sharding.FSDP2)
    for term in answer(parallelism=sharded).terms:
        assert term.formula
        assert term.source, term.name
        assert term.inputs, term.name


def test_the_verdict_follows_the_interval_of_device_bytes() -> None:
    peak = answer().peak
    assert peak is not None
    limits = {
        peak.device.high_bytes: EstimateVerdict.FITS,
        peak.device.high_bytes - 1: EstimateVerdict.TIGHT,
        peak.device.low_bytes: EstimateVerdict.TIGHT,
        peak.device.low_bytes - 1: EstimateVerdict.DOES_NOT_FIT,
    }
    for limit, verdict in limits.items():
        assert answer(memory_bytes=limit).verdict is verdict
    assert answer().verdict is EstimateVerdict.UNSPECIFIED


def test_a_budget_of_allocated_bytes_is_judged_as_such() -> None:
    peak = answer().peak
    assert peak is not None
    budget = Budget(bytes=peak.allocated.high_bytes, kind=BytesKind.ALLOCATED)
    assert answer(budget=budget).verdict is EstimateVerdict.FITS


def test_step_2_is_higher_than_step_1_by_the_moments() -> None:
    phases = {phase.name: phase.peak_bytes for phase in answer().phases}
    moments = next(term for term in answer().terms if term.name == "optimizer moments")
    assert phases["step 2 forward"] - phases["step 1 forward"] == moments.largest_bytes


def test_zero_and_fsdp_take_their_own_recipes() -> None:
    zero = answer(parallelism=Parallelism(world_size=4, sharding=Sharding.ZERO_3))
    fsdp = answer(parallelism=Parallelism(world_size=4, sharding=Sharding.FSDP2))
    assert any("2 + 2 + 12" in each for each in zero.assumptions)
    assert any("4 + 4 + 8" in each for each in fsdp.assumptions)
    reduce = {term.name: term.largest_bytes for term in fsdp.terms}
    assert reduce["reduce buffers"] == 2 * reduce["gathered unit"]


def test_what_the_request_did_not_say_is_assumed_in_words() -> None:
    alone = answer(Training(seq=128)).assumptions
    for start in ("ranks: 1", "microbatch: 1", "accumulation: one", "optimizer: AdamW"):
        assert any(each.startswith(start) for each in alone), start
    split = Parallelism(world_size=8, tp=2, sharding=Sharding.ZERO_2)
    spread = answer(parallelism=split).assumptions
    assert "degrees that were not given: dp_replicate=1, dp_shard=4, pp=1, cp=1, ep=1" in spread
    assert any(each.startswith("reduce bucket: 500,000,000 elements") for each in spread)
    assert any(each.startswith("sequence parallelism: off") for each in spread)
    reduced = answer(Training(seq=128, accumulation=2), split).assumptions
    assert any("never kept whole (no_sync)" in each for each in reduced)
    replicated = answer(parallelism=Parallelism(world_size=8)).assumptions
    assert "sharding: none, every data rank holds all model states" in replicated


def test_what_the_request_did_say_is_not_assumed() -> None:
    told = Parallelism(
        world_size=8, dp_replicate=1, dp_shard=8, tp=1, pp=1, cp=1, ep=1,
        sharding=Sharding.ZERO_1, reduce_bucket_elements=1_000,
    )  # fmt: skip
    said = answer(Training(microbatch=1, seq=128, accumulation=1), told).assumptions
    for start in ("degrees", "sharding:", "accumulation", "reduce bucket", "ranks", "microbatch"):
        assert not any(each.startswith(start) for each in said), start


@pytest.mark.parametrize(
    "training",
    [
        Training(microbatch=2, seq=128, recompute=Recompute.FULL),
        Training(microbatch=1, seq=128),
        Training(microbatch=2, seq=64),
        Training(microbatch=2, seq=128, optimizer=Optimizer.SGD),
    ],
)
def test_changes_that_keep_less_lower_the_peak(training: Training) -> None:
    assert expected(answer(training)) < expected(answer())


def test_changes_that_keep_more_raise_the_peak() -> None:
    eager = answer(Training(microbatch=2, seq=128, attention=Attention.EAGER))
    foreach = answer(Training(microbatch=2, seq=128, optimizer=Optimizer.ADAMW_FOREACH))
    assert expected(eager) > expected(answer())
    temporaries = next(term for term in foreach.terms if term.name == "optimizer temporaries")
    moments = next(term for term in foreach.terms if term.name == "optimizer moments")
    # verl-project/verl#5364: the temporary is half of the two moments.
    assert moments.largest_bytes == 2 * temporaries.largest_bytes


def test_states_shrink_with_every_stage_and_with_more_ranks() -> None:
    stages = [Sharding.REPLICATED, Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3]
    steady = [
        answer(parallelism=Parallelism(world_size=8, sharding=each)).steady_bytes for each in stages
    ]
    assert steady == sorted(steady, reverse=True)
    ranks = [
        answer(parallelism=Parallelism(world_size=each, sharding=Sharding.ZERO_3)).steady_bytes
        for each in (1, 2, 4, 8)
    ]
    assert ranks == sorted(ranks, reverse=True)


def test_advice_is_sorted_and_true() -> None:
    found = answer(memory_bytes=GIB)
    deltas = [each.delta_bytes for each in found.advice]
    assert deltas == sorted(deltas)
    full = next(each for each in found.advice if each.change == "recompute every layer")
    recomputed = answer(Training(microbatch=2, seq=128, recompute=Recompute.FULL))
    assert full.delta_bytes == expected(recomputed) - expected(answer())


def test_the_largest_microbatch_fits_and_one_more_does_not() -> None:
    limit = 2 * GIB
    largest = answer(memory_bytes=limit).max_microbatch
    assert largest
    fits = answer(Training(microbatch=largest, seq=128), memory_bytes=limit)
    above = answer(Training(microbatch=largest + 1, seq=128), memory_bytes=limit)
    assert fits.verdict is EstimateVerdict.FITS
    assert above.verdict is not EstimateVerdict.FITS


def test_what_ifs_answer_as_requests_of_their_own_would() -> None:
    variation = WhatIf(name="full", training=Training(recompute=Recompute.FULL))
    found = answer(what_ifs=(variation,))
    alone = answer(Training(microbatch=2, seq=128, recompute=Recompute.FULL))
    assert found.what_ifs[0].peak == alone.peak
    assert found.what_ifs[0].delta_bytes == expected(alone) - expected(found)


def test_equal_requests_have_equal_answers() -> None:
    assert answer() == answer()


@pytest.mark.parametrize(
    ("training", "parallelism", "field"),
    [
        (Training(microbatch=1), Parallelism(), "training.seq"),
        (None, Parallelism(world_size=3, tp=3), "parallelism.tp"),
        (None, Parallelism(world_size=8, dp_shard=8), "parallelism.dp_shard"),
        (
            Training(seq=8, actions=(BlockAction(block="x", option="save"),)),
            None,
            "actions[0].block",
        ),
        (
            Training(seq=8, actions=(BlockAction(block="head", option="drop"),)),
            None,
            "actions[0].option",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(
    training: Training | None, parallelism: Parallelism | None, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        answer(training, parallelism)
    assert raised.value.field.endswith(field)


def test_a_subject_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(NotSupportedError, match="workload"):
        estimate(EstimateRequest(workload=WorkloadReference(name="mlp")))


def test_a_fault_of_a_variation_is_named_at_its_place() -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        answer(what_ifs=(WhatIf(name="a"), WhatIf(name="b", parallelism=Parallelism(tp=3))))
    assert wrong.value.field == "what_ifs[1].parallelism.tp"


@pytest.mark.parametrize("microbatch", [1, 2**31])
def test_a_run_too_large_to_be_written_is_refused_at_a_field_of_the_request(
    microbatch: int,
) -> None:
    training = Training(seq=2**31, microbatch=microbatch, attention=Attention.EAGER)
    with pytest.raises(InvalidRequestError) as wrong:
        answer(training)
    assert wrong.value.field == "training.seq"


def test_a_variation_can_switch_a_flag_off() -> None:
    split = Parallelism(world_size=2, tp=2, sequence_parallel=True)
    off = WhatIf(name="off", parallelism=Parallelism(sequence_parallel=False))
    found = answer(parallelism=split, what_ifs=(off,))
    assert found.what_ifs[0].delta_bytes is not None
    assert found.what_ifs[0].delta_bytes > 0


def test_a_variation_without_figures_says_why_and_claims_no_difference() -> None:
    unsynced = WhatIf(
        name="no_sync",
        training=Training(no_sync=True),
        parallelism=Parallelism(world_size=2, sharding=Sharding.ZERO_2),
    )
    found = answer(memory_bytes=GIB, what_ifs=(unsynced,))
    assert found.what_ifs[0].verdict is EstimateVerdict.UNKNOWN
    assert found.what_ifs[0].delta_bytes is None
    assert "no_sync" in found.what_ifs[0].not_modelled[0]


@pytest.mark.parametrize(
    ("training", "parallelism", "word"),
    [
        (
            Training(seq=8, no_sync=True),
            Parallelism(world_size=2, sharding=Sharding.ZERO_2),
            "no_sync",
        ),
        (
            Training(seq=8),
            Parallelism(sharding=Sharding.FSDP1, limit_all_gathers=False),
            "limit_all_gathers",
        ),
    ],
)
def test_settings_that_are_not_modelled_get_no_figures(
    training: Training, parallelism: Parallelism, word: str
) -> None:
    found = answer(training, parallelism, memory_bytes=GIB)
    assert found.verdict is EstimateVerdict.UNKNOWN
    assert word in found.not_modelled[0]
    assert found.peak is None


def test_a_call_that_ended_stops_the_work_at_the_next_timeline() -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    request = EstimateRequest(
        documents=(SMALL,),
        training=Training(seq=8),
        device=Device(memory_bytes=GIB),
        what_ifs=tuple(WhatIf(name=str(place)) for place in range(9)),
    )
    with pytest.raises(CallCancelledError):
        estimate(request, stop)
    assert asked == 4


def test_an_action_that_stands_twice_is_refused() -> None:
    block = "model.layers.0"
    actions = (BlockAction(block=block, option="save"), BlockAction(block=block, option="save"))
    with pytest.raises(InvalidRequestError, match=r"actions\[1\].block.*twice"):
        answer(Training(seq=8, actions=actions))


def test_no_end_of_the_peak_is_below_the_states_that_stay() -> None:
    """States of AdamW are nearly all of this peak; a margin below it cannot take them away."""
    found = answer(training=Training(microbatch=1, seq=8))
    assert found.peak is not None
    assert found.peak.allocated.low_bytes >= found.steady_bytes
    budget = Budget(bytes=found.steady_bytes - 1, kind=BytesKind.ALLOCATED)
    tight = answer(training=Training(microbatch=1, seq=8), budget=budget)
    assert tight.verdict is EstimateVerdict.DOES_NOT_FIT
