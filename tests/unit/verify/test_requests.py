"""What a Verify request refuses, each with the field and what would do; what a server refuses."""

import re
from dataclasses import replace
from typing import Any

import pytest

from haversack.errors import (
    InvalidRequestError,
    MissingExtraError,
)
from haversack.parallelism import Sharding
from haversack.run import BlockAction, WorkloadReference
from haversack.verify import (
    CancelVerifyRequest,
    Facet,
    VerifyEvent,
    VerifyLimits,
    VerifyPlan,
    VerifyQueued,
    VerifyReport,
    VerifyRequest,
    VerifyRunning,
    VerifySchedule,
    VerifyWorld,
)
from haversack_server.gpus import attached
from haversack_server.gpus.attached import Attached
from haversack_server.gpus.nvml import Gpu
from haversack_server.verify.admissible import check_admissible
from haversack_server.verify.entry_points import check_allowed, check_prefix, covers

MLP = WorkloadReference(name="mlp")
FSDP2 = VerifyWorld(size=4, sharding=Sharding.FSDP2)
RECOMPUTED = VerifyPlan(actions=(BlockAction(block="a", option="recompute"),))


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refusal:
        VerifyRequest(**{"workload": MLP, **fields})
    return refusal.value


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        (WorkloadReference(), "workload.name"),
        (WorkloadReference(name="mlp", entry_point="a:b"), "workload.name"),
        (WorkloadReference(entry_point="a.b"), "workload.entry_point"),
        (WorkloadReference(entry_point="a b:c"), "workload.entry_point"),
        (WorkloadReference(entry_point=".a:c"), "workload.entry_point"),
        (WorkloadReference(entry_point="a:b:c"), "workload.entry_point"),
        (WorkloadReference(entry_point="1a:b"), "workload.entry_point"),
        (WorkloadReference(entry_point="a:b()"), "workload.entry_point"),
        (WorkloadReference(name="mlp", args_json="{"), "workload.args_json"),
        (WorkloadReference(name="mlp", args_json="[1]"), "workload.args_json"),
        (WorkloadReference(name="mlp", args_json="2"), "workload.args_json"),
        (WorkloadReference(name="mlp", args_json="[" * 100_000), "workload.args_json"),
        (WorkloadReference(name="mlp", args_json=" " * 2**21), "workload.args_json"),
    ],
)
def test_a_workload_that_is_not_named_in_one_way_is_refused(
    workload: WorkloadReference, field: str
) -> None:
    assert refused(workload=workload).field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", "a b"),
        ("job_id", "x" * 129),
        ("job_id", "../x"),
        ("seed", -1),
        ("seed", 2**32),
        ("seed", True),
        ("seed", 1.0),
        ("device_count", 0),
        ("device_count", 65),
        ("device_count", True),
        ("device", "gpu"),
        ("device", "cuda"),
        ("device", "cuda:x"),
        ("threads", 0),
        ("determinism_check", "strict"),
        ("regions", ("",)),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_its_field(field: str, value: object) -> None:
    assert refused(**{field: value}).field == field


def test_a_waiver_that_is_no_facet_is_refused_by_its_place() -> None:
    error = refused(waivers=(Facet.BUFFERS, Facet.UNSPECIFIED))
    assert error.field == "waivers[1]"
    assert "BUFFERS" in str(error)


def test_every_rule_that_is_broken_is_told_at_once() -> None:
    assert [v.field for v in refused(seed=-1, device="tpu").violations] == ["seed", "device"]


@pytest.mark.parametrize("field", ["deadline_ns", "memory_bytes"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_limits_are_positive_integers(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"limits.{field}"):
        VerifyLimits(**{field: value})  # type: ignore[arg-type]


LONG = "x" * 10**6


@pytest.mark.parametrize(
    "fields",
    [
        {"device": LONG},
        {"determinism_check": LONG},
        {"workload": WorkloadReference(entry_point=LONG)},
        {"plan": VerifyPlan(actions=(BlockAction(block=LONG, option="recompute"),) * 2)},
    ],
)
def test_what_is_wrong_is_told_in_few_words_however_long_it_is(fields: dict[str, Any]) -> None:
    assert len(str(refused(**fields))) < 500


def test_an_entry_point_that_is_not_allowed_is_told_in_few_words() -> None:
    with pytest.raises(InvalidRequestError, match="no entry point may run here") as refusal:
        check_allowed(f"{LONG}:{LONG}", [], field="workload.entry_point")
    assert len(str(refusal.value)) < 1000


def test_regions_and_a_plan_exclude_each_other() -> None:
    assert refused(regions=("a",), plan=VerifyPlan()).field == "regions"


def test_a_plan_says_of_a_block_once_how_it_runs() -> None:
    twice = tuple(BlockAction(block="a", option=each) for each in ("recompute", "save"))
    error = refused(plan=VerifyPlan(actions=twice))
    assert error.field == "plan.actions[1].block"
    assert "'a' twice" in str(error)


def test_an_option_that_is_unknown_is_refused_by_its_place() -> None:
    odd = BlockAction(block="b", option="x" * 1000)
    plan = VerifyPlan(actions=(*RECOMPUTED.actions, odd))
    with pytest.raises(InvalidRequestError) as refusal:
        check_admissible(VerifyRequest(workload=MLP, plan=plan), [])
    assert refusal.value.field == "plan.actions[1].option"
    assert len(str(refusal.value)) < 200


def test_an_event_is_one_thing() -> None:
    with pytest.raises(InvalidRequestError):
        VerifyEvent(job_id="j")
    with pytest.raises(InvalidRequestError):
        VerifyEvent(queued=VerifyQueued(), running=VerifyRunning())
    assert VerifyEvent(report=VerifyReport()).report == VerifyReport()


def test_cancelling_needs_an_id() -> None:
    with pytest.raises(InvalidRequestError, match="job_id"):
        CancelVerifyRequest(job_id="")


@pytest.mark.parametrize("name", ["buffers", "input-gradients", "INPUT_GRADIENTS", " rng "])
def test_a_facet_is_found_by_its_name(name: str) -> None:
    assert Facet.named(name) in Facet


@pytest.mark.parametrize("name", ["", "buffer", "unspecified"])
def test_an_unknown_facet_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="side_effects"):
        Facet.named(name)


def test_a_facet_that_a_report_does_not_have_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        VerifyReport().facet(Facet.RNG)


@pytest.mark.parametrize(
    ("prefix", "entry_point", "allowed"),
    [
        ("mypkg.", "mypkg.models:build", True),
        ("mypkg.", "mypkg:build", True),
        ("mypkg", "mypkg.models:build", True),
        ("mypkg.models", "mypkg.models:build", True),
        ("mypkg.models.", "mypkg.models.small:build", True),
        ("mypkg.", "mypkgevil:build", False),
        ("mypkg.", "mypkgevil.mypkg:build", False),
        ("mypkg", "mypkgevil:build", False),
        ("mypkg.models", "mypkg:models", False),
        ("", "mypkg:build", False),
        (".", "mypkg:build", False),
    ],
)
def test_a_prefix_covers_whole_components(prefix: str, entry_point: str, allowed: bool) -> None:
    assert covers(prefix, entry_point) is allowed


@pytest.mark.parametrize("prefix", ["", ".", "my pkg", "mypkg..x", "*", "os:system"])
def test_a_prefix_that_is_no_dotted_name_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequestError, match="allow"):
        check_prefix(prefix)


def entry(entry_point: str) -> VerifyRequest:
    return VerifyRequest(workload=WorkloadReference(entry_point=entry_point))


def test_an_entry_point_outside_the_prefixes_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidRequestError, match="--allow os") as refusal:
        check_admissible(entry("os.path:join"), ["mypkg."])
    assert refusal.value.field == "workload.entry_point"
    with pytest.raises(InvalidRequestError, match="no entry point may run here"):
        check_admissible(entry("mypkg:build"), [])


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    request = VerifyRequest(workload=WorkloadReference(name="gpt2-tny"))
    with pytest.raises(InvalidRequestError, match="gpt2-tiny") as refusal:
        check_admissible(request, [])
    assert refusal.value.field == "workload.name"


@pytest.mark.parametrize(
    ("name", "args_json", "words"),
    [
        ("gpt2-tiny", '{"zzz": 0}', 'has no argument "zzz"; it takes width, layers, heads'),
        ("gpt2-tiny", '{"layres": 2}', "did you mean layers"),
        ("gpt2-tiny", '{"layers": 0}', "is 0; give an integer from 1 to 64"),
        ("gpt2-tiny", '{"layers": 65}', "is 65; give an integer from 1 to 64"),
        ("gpt2-tiny", '{"layers": 99999999}', "is 99999999; give an integer"),
        ("gpt2-tiny", '{"layers": true}', "is true; give an integer"),
        ("gpt2-tiny", '{"layers": 2.0}', "is 2.0; give an integer"),
        ("gpt2-tiny", '{"layers": "2"}', 'is "2"; give an integer'),
        ("gpt2-tiny", '{"layers": null}', "is null; give an integer"),
        ("gpt2-tiny", '{"heads": 5}', "width of gpt2-tiny is 48; give a multiple of heads"),
        ("conv-batchnorm", '{"size": 1}', "give an integer from 2 to 256"),
        ("sine-dropout-square", '{"points": 2}', "takes no arguments"),
        ("mlp", '{"layers": [' + "1, " * 500 + "1]}", "1,..."),
    ],
)
def test_an_argument_that_a_built_in_workload_does_not_take_never_becomes_a_job(
    name: str, args_json: str, words: str
) -> None:
    named = WorkloadReference(name=name, args_json=args_json)
    with pytest.raises(InvalidRequestError, match=re.escape(words)) as refusal:
        check_admissible(VerifyRequest(workload=named), [])
    assert refusal.value.field == "workload.args_json"


def test_every_argument_that_will_not_do_is_told_at_once() -> None:
    named = WorkloadReference(name="mlp", args_json='{"depth": 1, "layers": 0, "batch": 2}')
    with pytest.raises(InvalidRequestError) as refusal:
        check_admissible(VerifyRequest(workload=named), [])
    assert len(refusal.value.violations) == 2


@pytest.mark.parametrize(
    "args_json", ["", "{}", '{"layers": 64}', '{"layers": 1}', '{"width": 50, "heads": 5}']
)
def test_arguments_within_their_bounds_may_run(args_json: str) -> None:
    named = WorkloadReference(name="gpt2-tiny", args_json=args_json)
    check_admissible(VerifyRequest(workload=named), [])


def test_a_missing_torch_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"haversack\[server,torch\]"):
        check_admissible(VerifyRequest(workload=MLP), [])


def test_a_gpu_that_is_not_attached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "attached_gpus", Attached)
    with pytest.raises(InvalidRequestError, match="no GPU; cpu would do") as refusal:
        check_admissible(VerifyRequest(workload=MLP, device="cuda:0"), [])
    assert refusal.value.field == "device"
    two = Attached(tuple(Gpu(cuda_name=name, index=0, uuid=name) for name in ("GPU-a", "GPU-b")))
    monkeypatch.setattr(attached, "attached_gpus", lambda: two)
    check_admissible(VerifyRequest(workload=MLP, device="cuda:1"), [])
    with pytest.raises(InvalidRequestError, match="cuda:0, cuda:1"):
        check_admissible(VerifyRequest(workload=MLP, device="cuda:2"), [])
    threaded = VerifySchedule.BACKWARD_IN_THREAD
    with pytest.raises(InvalidRequestError, match="schedule"):
        check_admissible(VerifyRequest(workload=MLP, device="cuda:1", schedule=threaded), [])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"world": VerifyWorld(size=3)}, InvalidRequestError),
        ({"world": VerifyWorld(size=2, sharding=Sharding.ZERO_1)}, InvalidRequestError),
        (
            {"world": VerifyWorld(size=2), "schedule": VerifySchedule.BACKWARD_IN_THREAD},
            InvalidRequestError,
        ),
        ({"plan": RECOMPUTED, "use_reentrant": True}, InvalidRequestError),
        ({"plan": VerifyPlan()}, InvalidRequestError),
        (
            {"plan": VerifyPlan(actions=(BlockAction(block="a", option="selective"),))},
            InvalidRequestError,
        ),
        (
            {"plan": VerifyPlan(actions=(BlockAction(block="a", option="save"),))},
            InvalidRequestError,
        ),
    ],
)
def test_what_cannot_be_verified_is_said(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        check_admissible(VerifyRequest(workload=MLP, **fields), [])


def test_ranks_selective_plans_and_segments_are_admitted() -> None:
    selective = replace(RECOMPUTED.actions[0], option="selective aten.mm.default:0")
    segment = replace(RECOMPUTED.actions[0], segment=1)
    for fields in (
        {"world": VerifyWorld(size=1)},
        {"world": FSDP2},
        {"plan": RECOMPUTED},
        {"plan": VerifyPlan(actions=(selective,)), "world": FSDP2},
        {"plan": VerifyPlan(actions=(segment,)), "world": FSDP2},
    ):
        request: Any = fields
        check_admissible(VerifyRequest(workload=MLP, **request), [])
