"""haversack diff: two sides read as what they are, a difference, a gate."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.cli.samples import drawn, interval

from haversack.cli.calls import json_of
from haversack.cli.differences import Threshold, difference, read_threshold
from haversack.cli.render.diff import draw_diff
from haversack.cli.saved import Side
from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateVerdict, Peak, Phase, Term, TermCategory
from haversack.parallelism import Sharding
from haversack.questions import EstimateQuestion

Run = Callable[..., Any]
Write = Callable[[str, str], str]
GIB = 2**30


def estimated(gib: float, **fields: Any) -> Estimate:
    """An answer whose peak is saved activations above 10 GiB of parameters."""
    activations = Term(
        name="saved activations", category=TermCategory.ACTIVATION, bytes=int((gib - 10) * GIB)
    )
    parameters = Term(name="parameters", category=TermCategory.PARAMETER, bytes=10 * GIB)
    context = Term(name="CUDA context", category=TermCategory.OUTSIDE, bytes=GIB)
    peak = Peak(allocated=interval(gib), device=interval(gib + 1))
    answer = Estimate(
        peak=peak,
        steady_bytes=10 * GIB,
        terms=(parameters, activations, context),
        phases=(Phase(name="step 2 backward", peak_bytes=int(gib * GIB), peak_moment="head"),),
        model_version="1",
    )
    return replace(answer, **fields)


@pytest.fixture
def saved(write: Write) -> Callable[[str, Estimate], str]:
    return lambda name, answer: write(name, json_of(answer))


Save = Callable[[str, Estimate], str]


def test_saved_answers_need_no_server(client: Any, haversack_run: Run, saved: Save) -> None:
    base, head = saved("base.json", estimated(50)), saved("head.json", estimated(51))
    done = haversack_run("diff", base, head)
    assert done.code == 0
    assert client.connections == []
    assert done.out.startswith("MORE  the expected peak goes from 50.00 GiB to 51.00 GiB")
    assert "+1.00 GiB, +2.00%" in " ".join(done.out.split())
    assert "CUDA context" not in done.out


@pytest.mark.parametrize(
    ("limit", "code"),
    [("2%", 0), ("1.99%", 4), ("1GiB", 0), ("1023MiB", 4), ("0%", 4), ("500%", 0)],
)
def test_the_gate_fails_above_its_limit_and_not_at_it(
    client: Any, haversack_run: Run, saved: Save, limit: str, code: int
) -> None:
    base, head = saved("base.json", estimated(50)), saved("head.json", estimated(51))
    done = haversack_run("diff", base, head, "--fail-above", limit)
    assert done.code == code
    assert done.out.startswith("ABOVE" if code else "WITHIN")


def test_a_smaller_head_never_fails(client: Any, haversack_run: Run, saved: Save) -> None:
    base, head = saved("base.json", estimated(51)), saved("head.json", estimated(50))
    assert haversack_run("diff", base, head, "--fail-above", "0%").code == 0


def test_a_request_of_keywords_is_answered_now(
    client: Any, haversack_run: Run, saved: Save, write: Write
) -> None:
    client.estimated = estimated(60)
    write("config.json", '{"model_type": "llama"}')
    head = write("head.json", '{"model": "config.json", "gpus": 8, "zero": 3, "seq": 4096}')
    done = haversack_run("diff", saved("base.json", estimated(50)), head, "--fail-above", "2%")
    assert done.code == 4
    (request,) = client.asked
    assert request.documents[0].text == '{"model_type": "llama"}'
    assert request.parallelism.sharding is Sharding.ZERO_3
    assert request.questions == (EstimateQuestion.BRIEF,)


def test_a_config_takes_the_settings_of_the_command_line(
    client: Any, haversack_run: Run, write: Write
) -> None:
    client.estimated = estimated(60)
    base = write("base.json", '{"model_type": "llama"}')
    head = write("head.json", '{"model_type": "qwen2"}')
    done = haversack_run("diff", base, head, "--gpus", "8", "--seq", "2048")
    assert done.code == 0
    assert [request.training.seq for request in client.asked] == [2048, 2048]
    assert len(client.connections) == 1
    assert done.out.startswith("SAME")


def test_a_request_in_protobuf_json_is_answered_now(
    client: Any, haversack_run: Run, write: Write
) -> None:
    client.estimated = estimated(60)
    path = write("request.json", '{"parameter_count": "5", "training": {"seq": "128"}}')
    assert haversack_run("diff", path, path).code == 0
    assert client.asked[0].training.seq == 128


def test_json_has_every_figure(client: Any, haversack_run: Run, saved: Save) -> None:
    base, head = saved("base.json", estimated(50)), saved("head.json", estimated(60))
    printed = haversack_run("diff", base, head, "--json", "--fail-above", "1GiB").json
    assert printed["compared"] == "peak"
    assert printed["base_bytes"] == 50 * GIB
    assert printed["delta_bytes"] == 10 * GIB
    assert printed["delta_share"] == 0.2
    assert printed["failed"] is True
    assert printed["fail_above"] == {"share": None, "bytes": GIB}
    assert printed["terms"][1] == {
        "name": "saved activations",
        "base_bytes": 40 * GIB,
        "head_bytes": 50 * GIB,
        "delta_bytes": 10 * GIB,
    }
    assert printed["head"]["verdict"] == "ESTIMATE_VERDICT_UNSPECIFIED"


def test_what_has_no_peak_is_unknown(client: Any, haversack_run: Run, saved: Save) -> None:
    head = saved("head.json", estimated(50, peak=None, reason="pp=2 is not modelled"))
    done = haversack_run("diff", saved("base.json", estimated(50)), head)
    assert done.code == 5
    assert "head.json has no peak to compare: pp=2 is not modelled" in done.err


def test_model_states_are_compared_as_such(client: Any, haversack_run: Run, saved: Save) -> None:
    base = saved("base.json", estimated(50, peak=None))
    head = saved("head.json", estimated(50, peak=None, steady_bytes=11 * GIB))
    done = haversack_run("diff", base, head, "--fail-above", "2%")
    assert done.code == 4
    assert "the steady part, not a peak," in done.out


def test_a_change_of_verdict_and_of_memory_model_is_told() -> None:
    base = Side("base.json", estimated(50, verdict=EstimateVerdict.FITS))
    head = Side("head.json", estimated(60, verdict=EstimateVerdict.TIGHT, model_version="2"))
    made = difference(base, head)
    assert made is not None
    text = " ".join(drawn(draw_diff, made, None).split())
    assert "The verdict was fits, and is tight." in text
    assert "different memory models, 1 and 2" in text


def test_terms_of_one_side_only_are_compared_with_nothing() -> None:
    gone = estimated(50)
    made = difference(Side("a", gone), Side("b", replace(gone, terms=gone.terms[:1])))
    assert made is not None
    assert [(row.name, row.delta_bytes) for row in made.terms] == [
        ("parameters", 0),
        ("saved activations", -40 * GIB),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "object"),
        ("not json", "not JSON"),
        ('{"wings": 2}', "neither an answer nor a request"),
        ('{"terms": 5, "phases": [], "model_version": "1"}', "no saved answer"),
        ("{}", "no subject is set"),
        ('{"model": "nowhere.json"}', "no such file"),
    ],
)
def test_a_side_that_is_nothing_is_one_sentence(
    client: Any, haversack_run: Run, saved: Save, write: Write, text: str, words: str
) -> None:
    done = haversack_run("diff", saved("base.json", estimated(50)), write("head.json", text))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert words in done.err
    assert "head.json" in done.err
    assert client.asked == []


@pytest.mark.parametrize("text", ["2", "2.5", "-1%", "two", "%", "1e3%"])
def test_a_limit_needs_its_unit(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_threshold(text, "fail_above")


@pytest.mark.parametrize("limit", ["-2%", "-1GiB", "two", "1e3%"])
def test_a_wrong_limit_is_told_both_forms(
    client: Any, haversack_run: Run, saved: Save, limit: str
) -> None:
    base = saved("base.json", estimated(50))
    done = haversack_run("diff", base, base, "--fail-above", limit)
    assert done.code == 2
    sentence = "is no limit of 0 or more; give a share such as 2%, or bytes such as 512MiB"
    assert f"'{limit}' {sentence} (--fail-above)" in done.err


def test_a_limit_is_a_share_or_bytes() -> None:
    assert read_threshold("2.5%", "") == Threshold(share=0.025)
    assert read_threshold("512MiB", "") == Threshold(bytes=512 * 2**20)


def test_a_page_of_differences_fits_80_columns() -> None:
    long = "a very long path of a file that says " * 4
    made = difference(Side(long, estimated(50)), Side(long, estimated(60)))
    assert made is not None
    text = drawn(draw_diff, made, Threshold(share=0.02))
    assert max(map(len, text.splitlines())) <= 80


def test_what_estimate_prints_as_json_is_read_back(saved: Save) -> None:
    from haversack.cli.saved import read_side

    answer = estimated(50)
    path = saved("answer.json", answer)
    assert json.loads(json_of(answer)).keys() >= {"terms", "phases", "model_version"}

    def nobody(request: Any) -> Estimate:
        raise AssertionError("a saved answer is not asked again")

    assert read_side(path, "base", {}, nobody).answer == answer
