"""A Verify report on its page."""

from dataclasses import replace

from tests.unit.cli.samples import REPORT, drawn

from haversack.cli.render.verify import draw_report, draw_workloads
from haversack.parallelism import Sharding
from haversack.verify import (
    CollectiveCount,
    Facet,
    FacetValue,
    FailureReason,
    LeftOutState,
    ListWorkloadsResponse,
    ResumedStep,
    TrainingCheckpoint,
    VerifyApplied,
    VerifyFailure,
    VerifyRank,
    VerifyReport,
    VerifyResumed,
    VerifySharded,
    VerifyVerdict,
    WorkloadInfo,
)


def test_a_report_begins_with_its_verdict_and_what_decided() -> None:
    text = drawn(draw_report, REPORT, False)
    assert text.startswith('DIFFERENT  conv-batchnorm with {"layers": 2}: buffers\n')


def test_a_report_marks_every_facet() -> None:
    lines = drawn(draw_report, REPORT, False).splitlines()
    marks = {
        line.split()[1]: line.split()[0] for line in lines if line[2:3] in "✓✗!·" and line[2:3]
    }
    assert marks == {"outputs": "✓", "buffers": "✗", "memory": "!", "rng": "·"}


def test_a_report_shows_where_how_much_and_what_cures_it() -> None:
    text = " ".join(drawn(draw_report, REPORT, False).split())
    for expected in (
        "operation aten.bernoulli_.float",
        "line models.py:17",
        "cause rng generator",
        "- keep BatchNorm outside the region",
        "- rng: different, which the verdict leaves out",
        "h.0-3 1 2 2 1",
        "peak bytes 200 B 150 B -25%",
        "kept bytes 100 B 50 B -50%",
        "time 1.00 us 1.30 us +30%",
        "the plan predicts 160 B",
        "- buffers differ",
        "- anything about several GPUs",
        "job nightly, seed 3, cpu, 1 thread, torch 2.13.0",
    ):
        assert expected in text


def test_ranks_have_a_line_each_and_both_counts_where_they_differ() -> None:
    counts = (
        CollectiveCount(operation="g", kind="gather", plain_count=9, checkpointed_count=9),
        CollectiveCount(operation="r", kind="reduction", plain_count=5, checkpointed_count=7),
    )
    found = VerifySharded(
        sharding=Sharding.FSDP2,
        world_size=2,
        backend="gloo",
        ranks=(
            VerifyRank(
                rank=1,
                parameter_bytes=8,
                plain_peak_bytes=20,
                checkpointed_peak_bytes=10,
                collectives=counts,
                predicted_plain_peak_bytes=19,
                predicted_checkpointed_peak_bytes=9,
            ),
            VerifyRank(rank=2),
        ),
        prediction_method="a trace",
    )
    text = " ".join(drawn(draw_report, replace(REPORT, sharded=found), False).split())
    assert "fsdp2 on 2 ranks over gloo" in text
    assert "1 8 B 20 B 10 B 9 5 plain, 7 checkpointed" in text
    assert "Predicted peaks - rank 1: 19 B plain, 9 B checkpointed - a trace" in text


def test_a_measured_plan_stands_beside_its_prediction() -> None:
    found = VerifyApplied(
        recomputed_count=3,
        predicted_peak_bytes=100,
        measured_peak_bytes=90,
        plain_peak_bytes=200,
        measured_extra_ns=-5,
        plain_ns=1000,
        replayed_count=2,
        findings=("regions: 1 of 3 did not run again",),
        not_compared=("time: not compared: a roofline's",),
    )
    text = " ".join(drawn(draw_report, replace(REPORT, applied=found), False).split())
    assert "blocks: 3 recomputed" in text
    assert "peak bytes 100 B 90 B 90.0% of it; 200 B if all is saved" in text
    assert "regions 3 2 that run again" in text
    assert "regions: 1 of 3 did not run again time: not compared" in text
    assert "recomputation - -5 ns" in text
    assert "the plan predicts" not in text


def test_verbose_adds_conditions() -> None:
    short, long = (" ".join(drawn(draw_report, REPORT, each).split()) for each in (False, True))
    for expected in (
        "threads: 1",
        "own process",
        "python: drawn in forwards and replays, state not restored",
        "(1.running_mean, 1.running_var)",
    ):
        assert expected not in short
        assert expected in long


def test_warnings_are_counted_beside_equivalent() -> None:
    report = VerifyReport(workload="mlp", verdict=VerifyVerdict.EQUIVALENT, warnings=("one", "two"))
    assert drawn(draw_report, report, False).startswith("EQUIVALENT  mlp; with 2 warnings\n")


def test_a_failed_job_shows_why_and_the_end_of_its_output() -> None:
    report = VerifyReport(
        workload="mypkg:build",
        verdict=VerifyVerdict.FAILED,
        failure=VerifyFailure(
            reason=FailureReason.WORKER_LOST,
            message="the process was killed",
            exit_status=-9,
            stderr_tail="loading\n[0] bad [red]allocation[/red]\n",
            stage="checkpointed",
        ),
    )
    assert "[0] bad" not in drawn(draw_report, report, False)
    text = drawn(draw_report, report, True)
    assert text.startswith("FAILED  mypkg:build\n")
    assert "worker lost in stage checkpointed: the process was killed (exit status -9)" in text
    assert "  [0] bad [red]allocation[/red]\n" in text


def test_workloads_are_listed_with_what_to_expect() -> None:
    answer = ListWorkloadsResponse(
        workloads=(WorkloadInfo(name="mlp", category="baseline", description="Two layers."),)
    )
    assert "  mlp  -\n    baseline: Two layers.\n" in drawn(draw_workloads, answer)


def test_a_run_that_goes_on_has_its_losses_beside_those_of_the_one_that_was_not_stopped() -> None:
    found = VerifyResumed(
        saved_size=2,
        resumed_size=4,
        saved_as=TrainingCheckpoint.FULL,
        steps_before=3,
        steps_after=2,
        checkpoint_bytes=2048,
        kept=("model", "optimizer"),
        missing=("rng",),
        left_out=(
            LeftOutState(
                facet=Facet.OPTIMIZER_STATE,
                value=FacetValue.DIFFERENT,
                next_steps=FacetValue.RAISED_ONLY_RESUMED,
            ),
        ),
        steps=(
            ResumedStep(step=4, uninterrupted_loss=0.5, resumed_loss=0.25),
            ResumedStep(step=5, uninterrupted_loss=0.375),
        ),
    )
    text = " ".join(drawn(draw_report, replace(REPORT, resumed=found), False).split())
    assert "full files of 2 ranks after 3 steps, read by 4" in text
    assert "2.00 KiB hold model, optimizer asked for, and not in the files: rng" in text
    assert "optimizer state - the training cannot go on without it" in text
    assert "step loss, not stopped loss, gone on 4 0.5 0.25 5 0.375 -" in text
