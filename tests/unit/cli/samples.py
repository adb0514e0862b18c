"""Answers to draw, and a page to draw them on."""

import io
from collections.abc import Callable
from typing import Any

from haversack.cli.render.page import Page
from haversack.estimate import (
    Estimate,
    EstimateVerdict,
    Moment,
    Peak,
    Phase,
    RankClass,
    Term,
    TermCategory,
    WhatIfAnswer,
)
from haversack.plan import (
    BudgetConversion,
    FrontierPoint,
    PeakAt,
    Plan,
    PlanStatus,
    Rung,
)
from haversack.requests import estimate_request, plan_request
from haversack.run import Advice, BlockAction, Budget, BytesKind, Interval
from haversack.verify import (
    DifferenceCause,
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    FirstDifference,
    RandomSource,
    RecomputeCount,
    VerifyEnvironment,
    VerifyEvidence,
    VerifyMemory,
    VerifyReport,
    VerifyTime,
    VerifyVerdict,
    VerifyWaiver,
)

GIB = 2**30


class Sink(io.StringIO):
    """A file, or what passes for a terminal, of some encoding."""

    def __init__(self, encoding: str = "utf-8", terminal: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


def drawn(
    draw: Callable[..., None], *answer: Any, width: int = 80, sink: Sink | None = None
) -> str:
    page = Page.of(sink or Sink(), width)
    draw(page, *answer)
    return page.text()


def interval(expected_gib: float) -> Interval:
    return Interval(
        low_bytes=int(expected_gib * 0.9 * GIB),
        expected_bytes=int(expected_gib * GIB),
        high_bytes=int(expected_gib * 1.1 * GIB),
    )


REQUEST = estimate_request(model={"model_type": "llama"}, gpus=8, gpu_memory="80GiB", zero=3)
ESTIMATE = Estimate(
    verdict=EstimateVerdict.DOES_NOT_FIT,
    reason="the peak of 105.00 GiB (94.50 GiB to 115.50 GiB) is above 80.00 GiB",
    peak=Peak(
        allocated=interval(100),
        reserved=interval(102),
        outside=interval(3),
        device=interval(105),
    ),
    peak_phase="step 2 backward",
    peak_moment="backward head",
    steady_bytes=30 * GIB,
    phases=(
        Phase(name="init", peak_bytes=20 * GIB, peak_moment="init"),
        Phase(name="step 1 backward", peak_bytes=85 * GIB, peak_moment="backward head"),
        Phase(name="step 2 backward", peak_bytes=100 * GIB, peak_moment="backward head"),
    ),
    timeline=(
        Moment(phase="init", name="init", allocated_bytes=20 * GIB, term_bytes=(20 * GIB, 0, 0)),
        Moment(
            phase="step 2 backward",
            name="backward head",
            allocated_bytes=100 * GIB,
            term_bytes=(20 * GIB, 80 * GIB, 0),
        ),
    ),
    terms=(
        Term(
            name="parameters",
            category=TermCategory.PARAMETER,
            bytes=20 * GIB,
            largest_bytes=20 * GIB,
            formula="parameters of the rank x 2 bytes",
            inputs=("parameters = 8030261248",),
            source="ZeRO paper (SC20), section 3.1",
            sharded_over=("dp_shard=8",),
        ),
        Term(
            name="logits", category=TermCategory.TRANSIENT, bytes=80 * GIB, largest_bytes=80 * GIB
        ),
        Term(name="reduce buffers", category=TermCategory.TRANSIENT, largest_bytes=GIB),
    ),
    ranks=(
        RankClass(name="stage 0", rank_count=4, steady_bytes=20 * GIB, peak_moment="backward a"),
        RankClass(name="stage 1", rank_count=4, steady_bytes=30 * GIB, peak_moment="backward b"),
    ),
    advice=(Advice(change="recompute every layer", delta_bytes=-50 * GIB, cost="a forward more"),),
    min_gpus=64,
    max_microbatch=0,
    assumptions=("optimizer: AdamW",),
    ignored_inputs=("documents[0].rope_theta",),
    not_modelled=("evaluation",),
    model_version="1",
    request_digest="0123456789abcdef",
    what_ifs=(
        WhatIfAnswer(
            name="zero=2",
            verdict=EstimateVerdict.TIGHT,
            peak=Peak(allocated=interval(70)),
            delta_bytes=-30 * GIB,
        ),
    ),
)


PLAN_REQUEST = plan_request(model={"model_type": "llama"}, gpus=8, gpu_memory="80GiB", zero=3)
PLAN = Plan(
    status=PlanStatus.FEASIBLE,
    reason="12 of 34 blocks are recomputed",
    actions=(
        BlockAction(block="embedding", option="save"),
        *(BlockAction(block=f"layers.{layer}", option="recompute") for layer in range(12)),
        *(BlockAction(block=f"layers.{layer}", option="save") for layer in range(12, 32)),
        BlockAction(block="head", option="save"),
    ),
    extra_ns=210_000_000,
    extra_share=0.083,
    gap=1_000_000,
    budget=BudgetConversion(
        given=Budget(bytes=80 * GIB, kind=BytesKind.DEVICE),
        allocated_bytes=60 * GIB,
        steps=("usable device bytes: 80.00 GiB",),
    ),
    predicted_peak_bytes=59 * GIB,
    peak_at=PeakAt(
        moment="backward head", phase="step 2 backward", largest_terms=("logits: 24.00 GiB",)
    ),
    floor_bytes=40 * GIB,
    rung=Rung.CEILING,
    solver="ceiling",
    frontier=(
        FrontierPoint(budget_bytes=40 * GIB, peak_bytes=40 * GIB, cost=10**9, saved_count=2),
        FrontierPoint(
            budget_bytes=42 * GIB, peak_bytes=42 * GIB, cost=8 * 10**8, saved_count=4, proven=True
        ),
    ),
)


REPORT = VerifyReport(
    job_id="nightly",
    workload="conv-batchnorm",
    args_json='{"layers": 2}',
    verdict=VerifyVerdict.DIFFERENT,
    warnings=("the checkpointed run saves no memory",),
    facets=(
        FacetResult(
            facet=Facet.OUTPUTS,
            value=FacetValue.EQUAL_BITWISE,
            severity=FacetSeverity.ERROR,
            detail="bitwise equal",
            compared_count=2,
        ),
        FacetResult(
            facet=Facet.BUFFERS,
            value=FacetValue.DIFFERENT,
            severity=FacetSeverity.ERROR,
            detail="buffers were updated twice",
            max_difference=0.125,
            names=("1.running_mean", "1.running_var"),
            compared_count=3,
            different_count=2,
            fix_hint="keep BatchNorm outside the region",
        ),
        FacetResult(
            facet=Facet.MEMORY,
            value=FacetValue.DIFFERENT,
            severity=FacetSeverity.WARNING,
            detail="no memory was saved",
        ),
        FacetResult(
            facet=Facet.RNG, value=FacetValue.NOT_CHECKED, severity=FacetSeverity.INFORMATION
        ),
    ),
    waivers=(VerifyWaiver(facet=Facet.RNG, value=FacetValue.DIFFERENT, used=True),),
    recompute_counts=(
        *(
            RecomputeCount(
                region=f"h.{layer}", plain_entries=1, entries=2, completions=1, expected_entries=2
            )
            for layer in range(4)
        ),
    ),
    random_sources=(RandomSource(source="python", drawn_in_forward=True, drawn_in_replay=True),),
    first_difference=FirstDifference(
        region="h.0",
        module="h.0.drop",
        operation="aten.bernoulli_.float",
        file="models.py",
        line=17,
        cause=DifferenceCause.RNG_GENERATOR,
        detail="another draw",
    ),
    memory=VerifyMemory(
        plain_peak_bytes=200,
        checkpointed_peak_bytes=150,
        plain_retained_bytes=100,
        checkpointed_retained_bytes=50,
        predicted_peak_bytes=160,
    ),
    time=VerifyTime(plain_ns=1000, checkpointed_ns=1300),
    environment=VerifyEnvironment(
        torch="2.13.0", python="3.11", device="cpu", threads=1, isolation=("own process",)
    ),
    pinned=("threads: 1",),
    evidence=VerifyEvidence(
        proves=("buffers differ",), does_not_prove=("anything about several GPUs",)
    ),
    loss="the scalar output",
    seed=3,
)
