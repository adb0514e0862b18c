"""Requests from keywords that people use: model="config.json", gpu_memory="80GiB", zero=3.

Knows the requests as wholes: candidates, variations, Verify jobs. Knows nothing of ranges and
combinations, which the nouns check, nor of the fields of a run, which ``run_fields`` makes.
"""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar, Unpack

from haversack import checks, spelling, strict_json
from haversack.documents import json_of
from haversack.errors import InvalidRequestError, Violation
from haversack.estimate import EstimateRequest, WhatIf
from haversack.keywords import RunOptions, VerifyOptions
from haversack.measured_plans import subject_of
from haversack.plan import Candidates, Plan, PlanConstraints, PlanRequest, RecomputeCandidates
from haversack.profile import Profile
from haversack.questions import EstimateQuestion, OutOfMemory
from haversack.reading import refuse
from haversack.resume_fields import resume_of
from haversack.run import BlockAction, Measurement, WorkloadReference
from haversack.run_fields import run_fields
from haversack.verify import (
    Facet,
    JobState,
    VerifyLimits,
    VerifyRequest,
    VerifySchedule,
)
from haversack.verify_fields import nanoseconds, verify_plan, weights_path, world_of
from haversack.verify_jobs import ListVerifyJobsRequest
from haversack.verify_ranks import ranks_of

Columns = Mapping[str, Any]
Part = TypeVar("Part")

_COUNTED = ("seed", "threads", "device_count")  # may come as numbers of numpy

# A variation has the subject, the kernel profile and the budget of its request.
_VARIED = [
    keyword
    for keyword in RunOptions.__annotations__
    if keyword
    not in (
        "model", "configs", "launch", "units", "parameter_count", "state_bytes",
        "kernel_profile", "budget", "budget_kind",
    )
]  # fmt: skip


def estimate_request(
    *,
    what_ifs: Sequence[WhatIf | Mapping[str, Any]] = (),
    actions: Sequence[BlockAction] = (),
    questions: Sequence[EstimateQuestion | str] = (),
    measurements: Sequence[Measurement | Mapping[str, Any]] = (),
    oom: OutOfMemory | str | None = None,
    **run: Unpack[RunOptions],
) -> EstimateRequest:
    """Build the request for an estimate.

    A variation of ``what_ifs`` is a mapping with a ``name`` and the keywords that it changes.
    ``actions`` are a plan's, to see what the planned run needs. ``questions`` are names such as
    "max-seq"; ``measurements`` mappings such as {"phase": "step 2 backward", "allocated_bytes":
    "71GiB"}; ``oom`` is the line of an out-of-memory error.
    """
    _refuse_unknown("estimate_request", run, RunOptions)
    fields = run_fields(run, actions=spelling.sequence(actions, "training.actions"))
    listed = spelling.sequence(what_ifs, "what_ifs")
    variations = [_what_if(f"what_ifs[{place}]", given) for place, given in enumerate(listed)]
    return EstimateRequest(
        **fields,
        what_ifs=tuple(variations),
        questions=tuple(
            spelling.named(EstimateQuestion, question, f"questions[{place}]")
            for place, question in enumerate(spelling.sequence(questions, "questions"))
        ),
        measurements=_measurements(measurements),
        oom=_out_of_memory(oom),
    )


def plan_request(
    *,
    candidates: Candidates | Columns | None = None,
    recompute_candidates: RecomputeCandidates | Columns | None = None,
    fit_expected: bool = False,
    frontier_points: int | None = None,
    state_limit: int | None = None,
    profile: Profile | Plan | str | PathLike[str] | None = None,
    measurements: Sequence[Measurement | Mapping[str, Any]] = (),
    workload: str | None = None,
    args: Mapping[str, Any] | str | None = None,
    blocks: Sequence[str] = (),
    must_save: Sequence[str] = (),
    must_recompute: Sequence[str] = (),
    equal_treatment: bool = False,
    without_segments: bool = False,
    rank: int | None = None,
    **run: Unpack[RunOptions],
) -> PlanRequest:
    """Build the request for a plan, of a model, of code or of candidates given as columns.

    ``haversack.keywords.PlanOptions`` says what each keyword means.
    """
    _refuse_unknown("plan_request", run, RunOptions)
    constraints = PlanConstraints(
        must_save=spelling.sequence(must_save, "constraints.must_save"),
        must_recompute=spelling.sequence(must_recompute, "constraints.must_recompute"),
        equal_treatment=spelling.flag(equal_treatment, "constraints.equal_treatment"),
        without_segments=spelling.flag(without_segments, "constraints.without_segments"),
    )
    fields = run_fields(run)
    measured = _measurements(measurements)
    subject, fields["parallelism"] = subject_of(profile, measured, fields["parallelism"])
    return PlanRequest(
        **fields,
        candidates=_candidates(candidates),
        recompute_candidates=_recompute_candidates(recompute_candidates),
        fit_expected=spelling.flag(fit_expected, "fit_expected"),
        frontier_points=checks.plain(frontier_points),
        state_limit=checks.plain(state_limit),
        profile=subject,
        workload=_workload(workload, args),
        blocks=spelling.sequence(blocks, "blocks"),
        constraints=None if constraints == PlanConstraints() else constraints,
        rank=checks.plain(rank),
    )


def verify_request(*, workload: str, **options: Unpack[VerifyOptions]) -> VerifyRequest:
    """Build the request for a Verify job of a built-in workload, or of "package.module:factory"."""
    _refuse_unknown("verify_request", options, VerifyOptions)
    given: dict[str, Any] = dict(options)
    given |= {name: checks.plain(given[name]) for name in _COUNTED if name in given}
    reference = _reference(workload, given.pop("args", None))
    limits = VerifyLimits(
        deadline_ns=nanoseconds(given.pop("deadline", None), "limits.deadline_ns"),
        memory_bytes=spelling.size(given.pop("memory", None), "limits.memory_bytes"),
    )
    waived = spelling.sequence(given.pop("waive", ()), "waivers")
    schedule = spelling.named(VerifySchedule, given.pop("schedule", None), "schedule")
    resume, saving = resume_of(given)
    least = 1 if resume is not None else 2
    world = world_of(given.pop("shard", None), given.pop("world_size", None), least=least)
    plan = verify_plan(given.pop("plan", None))
    return VerifyRequest(
        workload=reference,
        limits=limits,
        waivers=tuple(_facet(f"waivers[{place}]", facet) for place, facet in enumerate(waived)),
        schedule=schedule,
        regions=spelling.sequence(given.pop("regions", ()), "regions"),
        plan=plan,
        weights=weights_path(given.pop("weights", "")),
        world=saving or ranks_of(plan, world),
        resume=resume,
        **given,
    )


def list_verify_jobs_request(
    *, states: Sequence[JobState | str] = (), page_size: int | None = None, page_token: str = ""
) -> ListVerifyJobsRequest:
    """Build the request for a page of jobs; states are named as in "running"."""
    given = spelling.sequence(states, "states")
    named = [spelling.named(JobState, each, f"states[{at}]") for at, each in enumerate(given)]
    return ListVerifyJobsRequest(
        states=tuple(named),
        page_size=checks.plain(page_size),
        page_token=spelling.text(page_token, "page_token"),
    )


def _reference(workload: str, args: Mapping[str, Any] | str | None) -> WorkloadReference:
    name = spelling.text(workload, "workload.name")
    key = "entry_point" if ":" in name else "name"
    return WorkloadReference(**{key: name}, args_json=_args_json(args))


def _workload(
    workload: str | None, args: Mapping[str, Any] | str | None
) -> WorkloadReference | None:
    if workload is None and args is not None:
        refuse("there is no workload that these could be for", "workload.args_json")
    return None if workload is None else _reference(workload, args)


def _what_if(path: str, given: WhatIf | Mapping[str, Any]) -> WhatIf:
    """Make a variation; fields that are wrong are named with its place."""
    if isinstance(given, WhatIf):
        return given
    changes = spelling.table(
        given, path, others=("name", *_VARIED), example='{"name": "ZeRO-2", "zero": 2}'
    )
    name = spelling.text(changes.pop("name", ""), f"{path}.name")
    run: RunOptions = changes  # type: ignore[assignment] # the keys were checked
    try:
        parts = run_fields(run)
    except InvalidRequestError as wrong:
        raise InvalidRequestError(violations=_placed(path, wrong)) from wrong
    return WhatIf(
        name=name,
        training=_unless_empty(parts["training"]),
        parallelism=_unless_empty(parts["parallelism"]),
        device=_unless_empty(parts["device"]),
    )


def _measurements(given: Sequence[Measurement | Mapping[str, Any]]) -> tuple[Measurement, ...]:
    listed = spelling.sequence(given, "measurements")
    return tuple(_measurement(f"measurements[{place}]", each) for place, each in enumerate(listed))


def _measurement(path: str, given: Measurement | Mapping[str, Any]) -> Measurement:
    if isinstance(given, Measurement):
        return given
    sizes = ("allocated_bytes", "reserved_bytes")
    example = '{"phase": "step 2 backward", "allocated_bytes": "71GiB"}'
    table = spelling.table(
        given, path, others=("phase", "rank", "tokens_per_s", *sizes), example=example
    )
    table |= {name: spelling.size(table[name], f"{path}.{name}") for name in sizes if name in table}
    table |= {name: checks.plain(table[name]) for name in ("rank",) if name in table}
    spelling.text(table.get("phase", ""), f"{path}.phase")
    try:
        return Measurement(**table)
    except InvalidRequestError as wrong:
        raise InvalidRequestError(violations=_placed(path, wrong)) from wrong


def _out_of_memory(given: OutOfMemory | str | None) -> OutOfMemory | None:
    if given is None or isinstance(given, OutOfMemory):
        return given
    return OutOfMemory(text=spelling.text(given, "oom.text"))


def _placed(path: str, wrong: InvalidRequestError) -> list[Violation]:
    return [Violation(f"{path}.{each.field}", each.description) for each in wrong.violations]


def _unless_empty(part: Part) -> Part | None:
    return None if part == type(part)() else part


def _candidates(given: Candidates | Columns | None) -> Candidates | None:
    if given is None or isinstance(given, Candidates):
        return given
    example = '{"size_bytes": [3, 2, 2], "gain": [5, 3, 3]}'
    return Candidates(**_columns("candidates", given, example, single="fixed_bytes"))


def _recompute_candidates(
    given: RecomputeCandidates | Columns | None,
) -> RecomputeCandidates | None:
    if given is None or isinstance(given, RecomputeCandidates):
        return given
    example = '{"freed_bytes": [3, 2, 2], "added_ns": [5, 3, 3]}'
    return RecomputeCandidates(
        **_columns("recompute_candidates", given, example, single="used_bytes")
    )


def _columns(path: str, given: object, example: str, *, single: str) -> dict[str, Any]:
    """Read a table whose columns are lists, beside one single figure."""
    needed = tuple(json.loads(example))
    table = spelling.table(given, path, needed=needed, others=("names", single), example=example)
    for key in table.keys() - {single}:
        table[key] = spelling.sequence(table[key], f"{path}.{key}")
    names = table.get("names", ())
    if not set(map(type, names)) <= {str}:
        for place, name in enumerate(names):
            spelling.text(name, f"{path}.names[{place}]")
    if single in table:
        table[single] = checks.plain(table[single])
    return table


def _args_json(args: Mapping[str, Any] | str | None) -> str:
    field = "workload.args_json"
    if args is None:
        return ""
    if isinstance(args, Mapping):
        return json_of(args, field)
    written = spelling.text(args, field)
    strict_json.parse_object(written, field=field, example='{"layers": 2}')
    return written


def _facet(path: str, given: Facet | str) -> Facet:
    return spelling.named(Facet, given, path)


def _refuse_unknown(function: str, given: Mapping[str, Any], known: type) -> None:
    # What Python does itself where keywords are spelled out; Unpack is for type checkers only.
    for keyword in given:
        if keyword not in known.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")
