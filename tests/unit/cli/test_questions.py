"""explain-oom, fit and whatif: what they ask, what they print, what they exit with."""

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from shlex import split
from typing import Any

import pytest
from tests.unit.cli.samples import drawn, interval

from haversack.basis import Basis
from haversack.cli.render.fit import draw_fit
from haversack.cli.render.measured import draw_measured
from haversack.cli.render.oom import draw_oom
from haversack.cli.render.what_ifs import draw_table
from haversack.estimate import Calibration, Estimate, EstimateVerdict, Peak, WhatIfAnswer
from haversack.parallelism import Sharding
from haversack.questions import (
    Collective,
    CollectiveKind,
    EstimateQuestion,
    FittingChange,
    MeasuredBytes,
    OomCause,
    OomCauseKind,
    OomExplanation,
    OomMatch,
    OomMatchKind,
    OutOfMemory,
    Residual,
    ResidualPosition,
)
from haversack.run import Advice, Measurement, Recompute

Run = Callable[..., Any]
Write = Callable[[str, str], str]
GIB = 2**30
LINE = "CUDA out of memory. Tried to allocate 3.91 GiB."
PEAK = Peak(allocated=interval(60), reserved=interval(63), outside=interval(1), device=interval(64))
GATHER = Collective(
    name="parameters of units",
    kind=CollectiveKind.ALL_GATHER,
    axis="dp_shard=8",
    count=68,
    bytes_per_rank=26 * GIB,
    formula="parameters x 7/8",
)
EXPLAINED = Estimate(
    peak=PEAK,
    peak_phase="step 2 backward",
    peak_moment="backward head",
    advice=(Advice(change="recompute every layer", delta_bytes=-50 * GIB, cost="time"),),
    oom=OomExplanation(
        summary="3.91 GiB is logits in fp32",
        figures=OutOfMemory(requested_bytes=4198330532, free_bytes=GIB, device_index=3),
        matches=(
            OomMatch(
                tensor="logits in fp32",
                kind=OomMatchKind.EXACT,
                bytes=8192 * 128256 * 4,
                formula="8,192 tokens x 128,256 logits of a token x 4 bytes",
                phases=("loss", "backward"),
            ),
            OomMatch(
                tensor="attention scores in bf16",
                kind=OomMatchKind.IMPLIED,
                bytes=4 * GIB,
                formula="32 heads x ...",
                phases=("forward",),
                implies="attention is not the flash kernel",
            ),
        ),
        causes=(
            OomCause(
                kind=OomCauseKind.FRAGMENTATION, reason="in pieces", remedy="let segments grow"
            ),
        ),
    ),
)


@pytest.fixture
def config(write: Write) -> str:
    return write("config.json", '{"model_type": "llama"}')


def test_explain_oom_sends_the_line_with_the_run(
    client: Any, haversack_run: Run, config: str
) -> None:
    client.estimated = EXPLAINED
    done = haversack_run("explain-oom", LINE, "--model", config, *split("--gpus 8 --zero 3"))
    assert done.code == 0
    (request,) = client.asked
    assert request.oom == OutOfMemory(text=LINE)
    assert request.questions == (EstimateQuestion.ADVICE,)
    assert request.parallelism.sharding is Sharding.ZERO_3
    for words in ("OUT OF MEMORY", "logits in fp32", "GPU 3", "let segments grow", "only if"):
        assert words in done.out


def test_explain_oom_reads_standard_input(
    client: Any, haversack_run: Run, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.estimated = EXPLAINED
    monkeypatch.setattr(sys, "stdin", io.StringIO(LINE + "\n"))
    haversack_run("explain-oom", "-", "--model", config)
    assert client.asked[0].oom.text == LINE + "\n"


def test_where_the_job_was_is_sent_along(client: Any, haversack_run: Run, config: str) -> None:
    client.estimated = EXPLAINED
    haversack_run("explain-oom", LINE, "--model", config, "--phase", "backward")
    assert client.asked[0].oom == OutOfMemory(text=LINE, phase="backward")


def test_explain_oom_exits_with_5_where_nothing_explains_it(
    client: Any, haversack_run: Run, config: str
) -> None:
    unknown = OomExplanation(summary="no tensor of this run has 117.74 MiB")
    client.estimated = replace(EXPLAINED, oom=unknown)
    done = haversack_run("explain-oom", LINE, "--model", config)
    assert done.code == 5
    assert done.out.startswith("UNKNOWN  no tensor of this run")
    assert "none in this run, as the settings describe it" in done.out


def test_an_empty_error_is_one_sentence(client: Any, haversack_run: Run, config: str) -> None:
    done = haversack_run("explain-oom", "", "--model", config)
    assert done.code == 2
    assert done.err == "haversack: oom.text: give the text of the error, or the requested bytes\n"
    assert client.asked == []


def test_explain_oom_needs_its_error(client: Any, haversack_run: Run, config: str) -> None:
    done = haversack_run("explain-oom", "--model", config)
    assert done.code == 2
    assert "ERROR" in done.err
    assert done.err.count("\n") == 1


FITTED = Estimate(
    verdict=EstimateVerdict.DOES_NOT_FIT,
    reason="the peak of 64.00 GiB is above 40.00 GiB",
    peak=PEAK,
    min_gpus=16,
    max_microbatch=0,
    max_seq=3092,
    fitting_changes=(
        FittingChange(
            change="recompute full",
            delta_bytes=-50 * GIB,
            limited=interval(20),
            extra_ns=991_000_000,
            extra_sent_bytes=0,
            cost="each layer's forward runs twice",
        ),
    ),
    searches=("fewest GPUs: to 4,096",),
)


def test_fit_asks_the_searches_and_prints_what_was_found(
    client: Any, haversack_run: Run, config: str
) -> None:
    client.estimated = FITTED
    done = haversack_run("fit", "--model", config, "--gpu-memory", "40GiB")
    assert done.code == 0
    assert client.asked[0].questions == (
        EstimateQuestion.MIN_GPUS,
        EstimateQuestion.MAX_MICROBATCH,
        EstimateQuestion.MAX_SEQ,
        EstimateQuestion.CHEAPEST_CHANGE,
    )
    for words in ("fewest GPUs", "16", "3,092", "recompute full", "+991.00 ms", "to 4,096"):
        assert words in done.out


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"min_gpus": None, "max_seq": 0}, 0),
        ({"min_gpus": None, "max_seq": 0, "fitting_changes": ()}, 4),
        ({"verdict": EstimateVerdict.UNKNOWN, "peak": None}, 5),
        ({"verdict": EstimateVerdict.FITS, "min_gpus": None, "max_seq": 0}, 0),
    ],
)
def test_fit_exits_with_what_it_found(
    client: Any, haversack_run: Run, config: str, changes: dict[str, Any], code: int
) -> None:
    client.estimated = replace(FITTED, **changes)
    assert haversack_run("fit", "--model", config, "--gpu-memory", "40GiB").code == code


def test_fit_needs_a_limit(client: Any, haversack_run: Run, config: str) -> None:
    done = haversack_run("fit", "--model", config)
    assert done.code == 2
    assert "nothing limits the run" in done.err
    assert "--gpu-memory" in done.err
    assert client.asked == []


TURNED = Estimate(
    verdict=EstimateVerdict.TIGHT,
    reason="tight",
    peak=PEAK,
    collectives=(GATHER,),
    recompute_ns=0,
    what_ifs=(
        WhatIfAnswer(name="seq 4096", verdict=EstimateVerdict.FITS, peak=PEAK, delta_bytes=-GIB),
        WhatIfAnswer(
            name="recompute full",
            verdict=EstimateVerdict.DOES_NOT_FIT,
            peak=PEAK,
            delta_bytes=-2 * GIB,
            recompute_ns=10**9,
            collectives=(GATHER,),
        ),
        WhatIfAnswer(name="ep 2", verdict=EstimateVerdict.UNKNOWN),
    ),
)


def test_whatif_turns_every_knob_where_none_is_named(
    client: Any, haversack_run: Run, config: str
) -> None:
    client.estimated = TURNED
    done = haversack_run("whatif", "--model", config)
    assert done.code == 0
    assert client.asked[0].questions == (EstimateQuestion.COLLECTIVES, EstimateQuestion.KNOBS)
    rows = [line.split()[0] for line in done.out.splitlines() if " GiB " in line]
    assert rows.index("recompute") < rows.index("seq")
    (now,) = [line for line in done.out.splitlines() if line.startswith("  as it is ")]
    assert now.split()[3] == "tight"
    assert "all-gather" in done.out


def test_a_knob_is_a_variation_for_each_of_its_values(
    client: Any, haversack_run: Run, config: str
) -> None:
    client.estimated = TURNED
    haversack_run(
        *("whatif", "--model", config, "--knob", "zero=2,3", "--knob", "fsdp"),
        *("--what-if", "recompute=full tp=2"),
    )
    (request,) = client.asked
    assert request.questions == (EstimateQuestion.COLLECTIVES,)
    assert [each.name for each in request.what_ifs] == [
        "zero=2", "zero=3", "fsdp", "recompute=full tp=2"
    ]  # fmt: skip
    shardings = [each.parallelism.sharding for each in request.what_ifs[:3]]
    assert shardings == [Sharding.ZERO_2, Sharding.ZERO_3, Sharding.FSDP2]
    assert request.what_ifs[3].training.recompute is Recompute.FULL


@pytest.mark.parametrize("knob", ["zero=", "zero=2 tp=2", "wings=2", "zero=two", ""])
def test_a_wrong_knob_is_one_sentence(
    client: Any, haversack_run: Run, config: str, knob: str
) -> None:
    done = haversack_run("whatif", "--model", config, "--knob", knob)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "(--knob)" in done.err
    assert client.asked == []


def test_a_wrong_variation_is_named_by_the_option_that_gave_it(
    client: Any, haversack_run: Run, config: str
) -> None:
    asked = ("whatif", "--model", config, "--knob")
    unread = haversack_run(*asked, "seq=abc", "--what-if", "tp=2")
    assert "knobs[0].seq: 'abc' is not a whole number such as 8 (--knob)" in unread.err
    assert haversack_run(*asked, "wings=2", "--what-if", "tp=2").err.endswith("(--knob)\n")
    assert haversack_run(*asked, "tp=2", "--what-if", "wings=2").err.endswith("(--what-if)\n")


def test_whatif_without_a_peak_is_unknown(client: Any, haversack_run: Run, config: str) -> None:
    client.estimated = Estimate(verdict=EstimateVerdict.UNKNOWN, reason="pp=2 is not modelled")
    done = haversack_run("whatif", "--model", config)
    assert done.code == 5
    assert "pp=2 is not modelled" in done.out


MEASURED = Estimate(
    residuals=(
        Residual(
            phase="step 2 backward",
            rank=3,
            kind=MeasuredBytes.ALLOCATED,
            measured_bytes=61 * GIB,
            estimated=interval(60),
            residual_bytes=GIB,
            position=ResidualPosition.INSIDE,
        ),
    ),
    calibration=Calibration(
        peak=PEAK,
        verdict=EstimateVerdict.TIGHT,
        scale_ppm=1_016_666,
        stands_on="measured: the peak itself",
        basis=Basis.MEASURED,
    ),
)


def test_measurements_are_sent_along(client: Any, haversack_run: Run) -> None:
    haversack_run(
        *("estimate", "--parameter-count", "5", "--measured", "step 2 backward@3=61GiB"),
        *("--measured", "peak=62GiB", "--measured", "reserved=70GiB"),
    )
    assert client.asked[0].measurements == (
        Measurement(phase="step 2 backward", rank=3, allocated_bytes=61 * GIB),
        Measurement(allocated_bytes=62 * GIB),
        Measurement(reserved_bytes=70 * GIB),
    )


@pytest.mark.parametrize("text", ["61GiB", "=61GiB", "peak=much", "peak@x=61GiB", "peak=0"])
def test_a_wrong_measurement_names_its_option(client: Any, haversack_run: Run, text: str) -> None:
    done = haversack_run("estimate", "--parameter-count", "5", "--measured", text)
    assert done.code == 2
    assert "measurements[0]" in done.err
    assert "--measured" in done.err
    assert client.asked == []


def test_residuals_are_drawn_with_what_they_make_of_the_peak() -> None:
    text = drawn(draw_measured, MEASURED)
    assert "61.00 GiB  60.00 GiB  +1.00 GiB  inside" in text
    assert "TIGHT" in text
    assert "scale 1.017; measured: the peak itself; basis measured" in text
    assert drawn(draw_measured, Estimate()).strip() == ""


def test_the_brief_answer_can_be_asked_for(client: Any, haversack_run: Run) -> None:
    haversack_run("estimate", "--parameter-count", "5", "--brief")
    assert client.asked[0].questions == (EstimateQuestion.BRIEF,)


@pytest.mark.parametrize("verbose", [False, True])
def test_every_page_fits_80_columns(verbose: bool) -> None:
    pages = [
        drawn(draw_oom, EXPLAINED, verbose),
        drawn(draw_fit, FITTED, verbose),
        drawn(draw_table, TURNED, verbose),
        drawn(draw_measured, MEASURED),
    ]
    for text in pages:
        assert max(map(len, text.splitlines())) <= 80


def test_json_is_the_whole_message(client: Any, haversack_run: Run, config: str) -> None:
    client.estimated = TURNED
    printed = haversack_run("whatif", "--model", config, "--json").json
    assert printed["what_ifs"][1]["collectives"][0]["kind"] == "COLLECTIVE_KIND_ALL_GATHER"
    client.estimated = EXPLAINED
    printed = haversack_run("explain-oom", LINE, "--model", config, "--json").json
    assert printed["oom"]["matches"][0]["tensor"] == "logits in fp32"
