"""Workloads that cannot be built, or that end their own process: a typed reason, nothing else."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack import wire
from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import FailureReason, VerifyLimits, VerifyRequest, VerifyVerdict, VerifyWorld
from haversack_server.jobs import JobRunner

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]
BAD, LOST, DEADLINE, OUT_OF_MEMORY = (
    FailureReason.BAD_WORKLOAD,
    FailureReason.WORKER_LOST,
    FailureReason.DEADLINE,
    FailureReason.OUT_OF_MEMORY,
)
RANKS = VerifyWorld(size=2, sharding=Sharding.REPLICATED)
LITTLE = VerifyLimits(memory_bytes=2**29)


@pytest.mark.parametrize(
    ("case", "arguments", "words"),
    [
        ("hostile:returns_nothing", "", "returned a NoneType; a haversack.torch.Workload would do"),
        ("hostile:raises", "", "raised ValueError: no weights here"),
        ("hostile:leaves", "", "raised SystemExit: leaving"),
        ("hostile:not_callable", "", "is a int, not a factory"),
        ("hostile:borrowed", '{"command": "true"}', "is defined in posix, which is not allowed"),
        ("hostile:os.system", '{"command": "true"}', "is defined in posix, which is not allowed"),
        ("hostile:cannot_be_looked_at", "", "what the factory made raised RuntimeError: no "),
        ("hostile:missing", "", "jobworkloads.hostile has no 'missing'"),
        ("missing:build", "", "jobworkloads.missing cannot be imported: ModuleNotFoundError"),
        ("cases:mlp", '{"depth": 2}', "unexpected keyword argument 'depth'"),
    ],
)
async def test_a_factory_that_gives_no_workload_is_a_bad_workload(
    verify: Verify, case: str, arguments: str, words: str
) -> None:
    report = await verify(case=case, args_json=arguments)
    assert report.verdict is VerifyVerdict.FAILED
    assert report.failure.reason is BAD
    assert words in report.failure.message
    assert report.facets == ()


async def test_a_factory_takes_json_arguments(verify: Verify) -> None:
    report = await verify(case="cases:mlp", args_json='{"layers": 3}')
    assert len(report.recompute_counts) == 3


async def test_a_package_may_be_its_own_module(runner: JobRunner, verify: Verify) -> None:
    named = WorkloadReference(entry_point="jobworkloads:build")
    events = [e async for e in runner.submit(VerifyRequest(workload=named)).events()]
    assert events[-1].report is not None
    assert events[-1].report.verdict is VerifyVerdict.EQUIVALENT


async def test_an_entry_point_that_is_not_allowed_never_becomes_a_job(runner: JobRunner) -> None:
    before = sum(runner.counts().values())
    for entry_point in ("os:getcwd", "jobworkloadsevil:build"):
        named = WorkloadReference(entry_point=entry_point)
        with pytest.raises(InvalidRequestError, match="not allowed"):
            runner.submit(VerifyRequest(workload=named))
    assert sum(runner.counts().values()) == before


@pytest.mark.parametrize(
    ("case", "arguments", "status"),
    [
        ("hostile:exits", '{"status": 7}', 7),
        ("hostile:exits", '{"status": 0}', 0),
        ("hostile:killed", "", -9),
        ("hostile:crashes", "", -11),
        ("hostile:in_forward", '{"harm": "exits"}', 7),
        ("hostile:in_forward", '{"harm": "killed"}', -9),
        ("hostile:in_forward", '{"harm": "leaves_processes_and_exits"}', 3),
        ("hostile:leaves_processes_and_exits", "", 3),
    ],
)
async def test_a_process_that_ends_itself_is_lost_with_its_status(
    verify: Verify, case: str, arguments: str, status: int
) -> None:
    report = await verify(case=case, args_json=arguments)
    assert report.verdict is VerifyVerdict.FAILED
    assert report.failure.reason is LOST
    assert report.failure.exit_status == status


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("hostile:endless", ""),
        ("hostile:sleeps", ""),
        ("hostile:in_forward", '{"harm": "endless"}'),
    ],
)
async def test_a_process_that_does_not_end_is_killed_at_its_deadline(
    verify: Verify, case: str, arguments: str
) -> None:
    limits = VerifyLimits(deadline_ns=700_000_000)
    report = await verify(case=case, args_json=arguments, limits=limits)
    assert report.failure.reason is DEADLINE
    assert "0.7 s" in report.failure.message


async def test_a_process_that_writes_to_every_descriptor_is_lost_long_before_its_deadline(
    verify: Verify,
) -> None:
    limits = VerifyLimits(deadline_ns=60 * 10**9)
    report = await verify(case="hostile:writes_to_every_descriptor", limits=limits)
    assert report.failure.reason is LOST


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("hostile:takes_memory", ""),
        ("hostile:takes_memory_of_python", ""),
        ("hostile:in_forward", '{"harm": "takes_memory"}'),
        ("hostile:in_forward", '{"harm": "takes_memory_of_python"}'),
    ],
)
async def test_a_process_that_takes_too_much_memory_is_told(
    verify: Verify, case: str, arguments: str
) -> None:
    report = await verify(case=case, args_json=arguments, limits=LITTLE)
    assert report.failure.reason is OUT_OF_MEMORY
    modest = await verify("mlp", limits=LITTLE)
    assert modest.verdict is VerifyVerdict.EQUIVALENT


@pytest.mark.parametrize("case", ["prints", "closes_its_output"])
async def test_what_a_workload_does_to_its_output_does_not_touch_the_protocol(
    verify: Verify, case: str
) -> None:
    report = await verify(case=f"hostile:{case}")
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)


@pytest.mark.parametrize("ignores", ["true", "false"])
async def test_a_workload_may_take_all_children_that_end(verify: Verify, ignores: str) -> None:
    arguments = f'{{"ignores": {ignores}}}'
    report = await verify(case="hostile:takes_ended_children", args_json=arguments)
    assert report.verdict is VerifyVerdict.EQUIVALENT


@pytest.mark.parametrize("ignores", ["true", "false"])
@pytest.mark.parametrize(
    ("harm", "world", "reason"),
    [
        ("exits", None, LOST),
        ("exits_as_a_rank", RANKS, FailureReason.RANK_LOST),
    ],
)
async def test_an_exit_status_that_a_workload_took_away_is_not_made_up(
    verify: Verify, harm: str, world: VerifyWorld | None, reason: FailureReason, ignores: str
) -> None:
    arguments = f'{{"ignores": {ignores}, "harm": "{harm}"}}'
    report = await verify(case="hostile:takes_ended_children", args_json=arguments, world=world)
    assert report.failure.reason is reason
    assert report.failure.exit_status is None
    assert "ended, and the workload took its exit status away" in report.failure.message


async def test_a_report_goes_on_the_wire_whatever_a_workload_says(verify: Verify) -> None:
    report = await verify(case="hostile:says_half_a_letter")
    message = wire.message_of(report)
    assert "raised ValueError: no ? weights" in message.failure.message  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('{"report": {}}', "it has no verdict"),
        ('{"progress": {"stage": "s", "total": 9223372036854775808}}', "9223372036854775808 is no"),
        ('{"progress": {"stage": 7}}', "7 is not str"),
    ],
)
async def test_what_no_caller_could_be_told_is_a_lost_job(
    verify: Verify, message: str, said: str
) -> None:
    arguments = f'{{"message": {message}}}'
    report = await verify(case="hostile:speaks_for_its_job", args_json=arguments)
    assert report.failure.reason is LOST
    assert f"sent something that is no report: {said}" in report.failure.message


async def test_a_job_speaks_of_itself_alone(verify: Verify) -> None:
    said = '{"report": {"job_id": "another", "workload": "mlp", "verdict": 1}}'
    report = await verify(case="hostile:speaks_for_its_job", args_json=f'{{"message": {said}}}')
    assert report.job_id != "another"
    assert report.workload == "jobworkloads.hostile:speaks_for_its_job"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_what_is_no_file_has_no_last_words_and_holds_up_nobody(
    verify: Verify, kind: str
) -> None:
    arguments = f'{{"kind": "{kind}"}}'
    report = await verify(case="hostile:leaves_instead_of_its_output", args_json=arguments)
    assert (report.failure.reason, report.failure.exit_status) == (LOST, 3)
    assert report.failure.stderr_tail == ""
    assert (await verify("mlp")).verdict is VerifyVerdict.EQUIVALENT


async def test_folders_of_any_depth_are_a_lost_job_and_no_fault_of_the_server(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine the server would find the folders while they are made, and end the job.
    monkeypatch.setattr("haversack_server.local_place._LOOK_S", 3600)
    report = await verify(case="hostile:digs")
    assert (report.failure.reason, report.failure.exit_status) == (LOST, 3)


async def test_the_last_words_of_a_job_are_kept(verify: Verify) -> None:
    report = await verify(case="hostile:raises")
    assert len(report.failure.stderr_tail) <= 4096
    assert report.failure.stderr_tail.endswith("ValueError: no weights here\n")
