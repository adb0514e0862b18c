"""Records as JSON objects between our own processes."""

import json
from typing import Any

import pytest

from haversack.run import BlockAction, WorkloadReference
from haversack.verify import (
    Facet,
    FacetResult,
    FacetValue,
    VerifyLimits,
    VerifyPlan,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
)
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.verify.records import RecordError, from_json, to_json

REQUEST = VerifyRequest(
    workload=WorkloadReference(entry_point="a.b:c", args_json='{"n": 1}'),
    early_stop=False,
    waivers=(Facet.BUFFERS,),
    limits=VerifyLimits(deadline_ns=5),
    plan=VerifyPlan(actions=(BlockAction(block="layers.0", option="recompute"),)),
)
REPORT = VerifyReport(
    verdict=VerifyVerdict.DIFFERENT,
    facets=(FacetResult(facet=Facet.OUTPUTS, value=FacetValue.DIFFERENT, max_difference=1.0),),
)
OUTCOME = Outcome(
    stage="plain",
    raised=Raised(part="loss", kind="E", message=""),
    rows=(Row(facet=Facet.RNG, name="x", closeness=Closeness.CLOSE),),
    rng={"python": "1"},
)


@pytest.mark.parametrize("record", [REQUEST, REPORT, OUTCOME, VerifyReport()])
def test_a_record_comes_back_as_it_was(record: object) -> None:
    assert from_json(type(record), json.loads(json.dumps(to_json(record)))) == record


def test_false_and_none_are_told_apart() -> None:
    assert from_json(VerifyRequest, to_json(REQUEST)).early_stop is False


@pytest.mark.parametrize(
    "spelled",
    [
        {"verdict": 99},
        {"verdict": "DIFFERENT"},
        {"seed": "1"},
        {"seed": True},
        {"facets": {}},
        {"facets": [{}]},
        {"failure": []},
        {"unknown": 1},
        [],
        None,
        "verdict",
    ],
)
def test_another_form_is_an_error(spelled: Any) -> None:
    with pytest.raises(RecordError):
        from_json(VerifyReport, spelled)
