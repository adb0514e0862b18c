"""Outcomes of runs by hand, for tests of what follows from them."""

from dataclasses import replace

from haversack.run import WorkloadReference
from haversack.verify import (
    Facet,
    FacetValue,
    VerifyEnvironment,
    VerifyReport,
    VerifyRequest,
)
from haversack_server.verify import reports
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.findings import Outcomes, findings
from haversack_server.verify.outcome import Outcome, Raised, RegionCount

REQUEST = VerifyRequest(workload=WorkloadReference(name="mlp"), job_id="j")
MOVED = Row(facet=Facet.BUFFERS, name="mean", closeness=Closeness.DIFFERENT, max_difference=0.1)
RAISED = Raised(part="backward", kind="ValueError", message="no\nmore")
COUNTED: list[int] = []  # what a test of state counts in


def plain(**fields: object) -> Outcome:
    outcome = Outcome(
        stage="plain",
        time_ns=10,
        compared={"OUTPUTS": 2, "PARAMETER_GRADIENTS": 3, "BUFFERS": 1},
        rng={"torch cpu": "a", "python": "b"},
        state={"model.n": "1"},
        regions=(RegionCount(region="block", entries=1, completions=1),),
        peak_bytes=100,
        retained_bytes=80,
    )
    return replace(outcome, **fields)  # type: ignore[arg-type]


def checkpointed(**fields: object) -> Outcome:
    count = RegionCount(region="block", entries=2, completions=1, expected_entries=2)
    outcome = plain(stage="checkpointed", regions=(count,), peak_bytes=90, retained_bytes=20)
    return replace(outcome, **fields)  # type: ignore[arg-type]


def runs(
    *, again: Outcome | None = None, first: Outcome | None = None, **fields: object
) -> Outcomes:
    return Outcomes(
        plain=first or plain(), again=again or plain(), checkpointed=checkpointed(**fields)
    )


def values(outcomes: Outcomes) -> dict[Facet, FacetValue]:
    return {result.facet: result.value for result in findings(outcomes)}


def report(outcomes: Outcomes) -> VerifyReport:
    return reports.compared(
        reports.blank(REQUEST, "j"),
        REQUEST,
        outcomes,
        environment=VerifyEnvironment(device="cpu"),
        pinned=("the seed",),
    )
