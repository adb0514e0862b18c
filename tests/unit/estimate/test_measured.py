"""Measurements sent along: residuals, a calibrated peak, and those that cannot be of the run."""

from dataclasses import replace

import pytest

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateRequest, EstimateVerdict
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import MeasuredBytes, ResidualPosition
from haversack.run import Device, Document, DocumentFormat, Measurement, Training
from haversack.units import GIB, MIB
from haversack_server.estimate.answer import estimate

SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": false}""",
)
BASE = EstimateRequest(
    documents=(SMALL,),
    training=Training(microbatch=2, seq=128),
    parallelism=Parallelism(world_size=4, sharding=Sharding.FSDP2),
)


def measured(*measurements: Measurement, memory_bytes: int | None = None) -> Estimate:
    device = Device(memory_bytes=memory_bytes)
    return estimate(replace(BASE, measurements=measurements, device=device))


def expected() -> int:
    peak = estimate(BASE).peak
    assert peak is not None
    return peak.allocated.expected_bytes


def test_a_residual_is_measured_less_expected_of_its_phase() -> None:
    phases = {phase.name: phase.peak_bytes for phase in estimate(BASE).phases}
    where = "step 1 forward"
    found = measured(Measurement(phase=where, rank=3, allocated_bytes=phases[where] + MIB))
    (residual,) = found.residuals
    assert (residual.phase, residual.rank, residual.kind) == (where, 3, MeasuredBytes.ALLOCATED)
    assert residual.estimated.expected_bytes == phases[where]
    assert residual.residual_bytes == MIB


@pytest.mark.parametrize(
    ("end", "beyond", "position"),
    [
        ("low_bytes", -1, ResidualPosition.BELOW),
        ("low_bytes", 0, ResidualPosition.INSIDE),
        ("high_bytes", 0, ResidualPosition.INSIDE),
        ("high_bytes", 1, ResidualPosition.ABOVE),
    ],
)
def test_a_residual_says_where_it_lies(end: str, beyond: int, position: ResidualPosition) -> None:
    peak = estimate(BASE).peak
    assert peak is not None
    figure = getattr(peak.allocated, end) + beyond
    assert measured(Measurement(allocated_bytes=figure)).residuals[0].position is position


def test_a_measured_peak_is_the_calibrated_one_and_says_so() -> None:
    figure = expected() + 3 * MIB
    found = measured(Measurement(allocated_bytes=figure), memory_bytes=80 * GIB)
    made = found.calibration
    assert made is not None
    assert made.peak is not None
    assert made.peak.allocated.expected_bytes == figure
    assert made.basis is Basis.MEASURED
    assert made.stands_on == "measured: the peak itself"
    assert made.verdict is EstimateVerdict.FITS
    assert found.basis is Basis.ANALYTIC  # the estimate itself is what it was
    assert found.peak == estimate(replace(BASE, device=Device(memory_bytes=80 * GIB))).peak


def test_a_phase_that_is_not_the_peaks_scales_it_and_stays_analytic() -> None:
    phases = {phase.name: phase.peak_bytes for phase in estimate(BASE).phases}
    twice = Measurement(phase="step 1 forward", allocated_bytes=2 * phases["step 1 forward"])
    made = measured(twice).calibration
    assert made is not None
    assert made.peak is not None
    assert made.scale_ppm == 2_000_000
    assert made.basis is Basis.ANALYTIC
    assert made.peak.allocated.expected_bytes == 2 * expected()
    assert "not measured at the peak" in made.stands_on
    assert "step 1 forward" in made.stands_on


def test_the_fullest_of_measured_ranks_decides() -> None:
    figures = [expected() - MIB, expected() + MIB]
    ranks = [Measurement(rank=rank, allocated_bytes=size) for rank, size in enumerate(figures)]
    made = measured(*ranks).calibration
    assert made is not None
    assert made.peak is not None
    assert made.peak.allocated.expected_bytes == figures[1]


def test_a_rank_is_compared_with_its_own_stage() -> None:
    staged = replace(BASE, parallelism=Parallelism(world_size=4, pp=2))
    classes = estimate(staged).ranks
    assert len(classes) == 2
    for each in classes:
        assert each.peak is not None
        figure = each.peak.allocated.expected_bytes + MIB
        measurement = Measurement(rank=each.first_rank, allocated_bytes=figure)
        (residual,) = estimate(replace(staged, measurements=(measurement,))).residuals
        assert residual.residual_bytes == MIB
    last = replace(staged, measurements=(Measurement(rank=3, allocated_bytes=GIB),))
    first = replace(staged, measurements=(Measurement(rank=0, allocated_bytes=GIB),))
    bases = {
        calibration.basis
        for calibration in (estimate(first).calibration, estimate(last).calibration)
        if calibration is not None
    }
    assert bases == {Basis.MEASURED, Basis.ANALYTIC}  # one of the two stages has the peak


def test_reserved_bytes_are_never_below_allocated_ones() -> None:
    both = Measurement(allocated_bytes=expected() * 2, reserved_bytes=expected() * 3)
    made = measured(both).calibration
    assert made is not None
    assert made.peak is not None
    assert made.peak.reserved.expected_bytes == expected() * 3
    alone = measured(Measurement(allocated_bytes=expected() * 2)).calibration
    assert alone is not None
    assert alone.peak is not None
    assert alone.peak.reserved.low_bytes >= alone.peak.allocated.low_bytes


def test_without_allocated_bytes_there_is_a_residual_and_no_calibration() -> None:
    found = measured(Measurement(reserved_bytes=expected() * 2))
    assert found.residuals[0].kind is MeasuredBytes.RESERVED
    assert found.calibration is None


@pytest.mark.parametrize(
    ("measurement", "field", "words"),
    [
        (Measurement(phase="lunch", allocated_bytes=GIB), "phase", "is no phase of this run"),
        (Measurement(rank=4, allocated_bytes=GIB), "rank", "whose last is 3"),
        (Measurement(allocated_bytes=90 * GIB), "allocated_bytes", "more than the device's"),
        (Measurement(allocated_bytes=1000), "allocated_bytes", "less than the"),
    ],
    ids=["phase", "rank", "device", "states"],
)
def test_what_cannot_be_of_this_run_is_refused(
    measurement: Measurement, field: str, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        measured(measurement, memory_bytes=80 * GIB)
    assert caught.value.field == f"measurements[0].{field}"


def test_two_figures_for_one_place_contradict_each_other() -> None:
    with pytest.raises(InvalidRequestError, match="a peak has one figure") as caught:
        measured(Measurement(allocated_bytes=GIB), Measurement(allocated_bytes=2 * GIB))
    assert caught.value.field == "measurements[1].allocated_bytes"
    same = Measurement(allocated_bytes=GIB)
    assert len(measured(same, same).residuals) == 2


def test_a_rate_is_named_as_not_used() -> None:
    found = measured(Measurement(allocated_bytes=expected(), tokens_per_s=12.5))
    assert "measurements[0].tokens_per_s: rates are not estimated" in found.ignored_inputs


@pytest.mark.parametrize(
    ("figures", "field"),
    [
        ({}, "allocated_bytes"),
        ({"allocated_bytes": 2, "reserved_bytes": 1}, "reserved_bytes"),
        ({"allocated_bytes": 0}, "allocated_bytes"),
        ({"tokens_per_s": float("inf")}, "tokens_per_s"),
        ({"tokens_per_s": float("nan")}, "tokens_per_s"),
        ({"allocated_bytes": 1, "rank": -1}, "rank"),
    ],
)
def test_a_measurement_that_contradicts_itself_is_none(
    figures: dict[str, float], field: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Measurement(**figures)  # type: ignore[arg-type]
    assert caught.value.field == field
