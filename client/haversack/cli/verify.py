"""``haversack verify``: does the run with activation checkpointing compute the same thing?"""

import contextlib
import os
from typing import TYPE_CHECKING, Any

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, note, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.option_types import Seconds, Whole
from haversack.cli.report_files import FILES, check_files, write_files
from haversack.cli.workload_options import WORKLOAD
from haversack.errors import InternalError
from haversack.reading import refuse

if TYPE_CHECKING:
    from haversack import Client
    from haversack.verify import VerifyEvent, VerifyReport, VerifyRequest

_WORKLOAD = [
    *WORKLOAD,
    options.option(
        "Workload", "--list", "listing", about="List the built-in workloads.", is_flag=True
    ),
]
_JUDGING = [
    options.option(
        "Verdict",
        "--strict",
        field="strict",
        about="Count warnings (side effects, unexpected recompute counts, no memory saved) as "
        "errors.",
        is_flag=True,
    ),
    options.option(
        "Verdict",
        "--waive",
        field="waivers",
        about="Facet that may differ, such as buffers; may be repeated. It is reported, and left "
        "out of the verdict.",
        metavar="FACET",
        multiple=True,
    ),
]
_PLAN = [
    options.option(
        "Workload",
        "--plan",
        field="plan",
        about="Plan to verify, as haversack plan -o writes it: its blocks run as "
        "haversack.torch.apply has them, and a step of it is measured beside what it predicts.",
        metavar="FILE",
    ),
]
_WEIGHTS = [
    options.option(
        "Workload",
        "--weights",
        field="weights",
        about="Weights to load before the runs: a safetensors file, or a folder of them; with "
        "--server an absolute path of its machine, in a folder of its --weights-dir. Default: "
        "those that the workload makes.",
        metavar="PATH",
        default="",
    ),
]
_SPREAD = [
    options.option(
        "Ranks",
        "--shard",
        field="world.sharding",
        about="Run on several ranks: ddp or fsdp2, processes of the CPU over gloo, or with "
        "--device cuda:0 on a GPU each over NCCL. Plain and checkpointed are compared on each, "
        "and the plain run with one process. Without it one process.",
        metavar="NAME",
    ),
    options.option(
        "Ranks",
        "--world-size",
        field="world.size",
        about="Number of ranks, 2 or 4. Needed with --shard.",
        type=Whole(),
    ),
]
_RESUME = [
    options.option(
        "Resume",
        "--resume",
        field="resume world.size",
        about="Stop training, save it to disk, go on from the files, and compare with the run that "
        "was not stopped: 2:4 saves on 2 ranks and goes on with 4 (each 1, 2 or 4), by fsdp2 "
        "unless --shard says ddp. This is about training checkpoints on disk, and no activation "
        "checkpoint. Without it the job is about those.",
        metavar="RANKS",
    ),
    options.option(
        "Resume",
        "--saved-as",
        field="saved_as",
        about="Form of the training checkpoint: sharded (each rank writes its shards) or full "
        "(rank 0 writes whole tensors). Default: sharded.",
        metavar="FORM",
    ),
    options.option(
        "Resume",
        "--steps-before",
        field="steps_before",
        about="Training steps before the stop. Default: 3.",
        type=Whole(),
    ),
    options.option(
        "Resume",
        "--steps-after",
        field="steps_after",
        about="Training steps after it that are compared. Default: 3.",
        type=Whole(),
    ),
    options.option(
        "Resume",
        "--leave-out-each",
        field="leave_out_each",
        about="Also leave out one kind of state after the other of those that the files hold, each "
        "in a run of its own, and say what it changes.",
        is_flag=True,
    ),
]
_JOB = [
    options.option(
        "Job",
        "--seed",
        field="seed",
        about="Seed of torch, python and numpy in every run. Default: 0.",
        type=Whole(),
        default=0,
    ),
    options.option(
        "Job",
        "--schedule",
        field="schedule",
        about="Order of forwards and backwards: one-microbatch, two-microbatches (two forwards, "
        "then two backwards), two-steps (with the optimizer between) or backward-in-thread (in a "
        "helper thread, on the CPU). Default: the workload's own, which --list tells, else "
        "one-microbatch.",
        metavar="NAME",
    ),
    options.option(
        "Job",
        "--device",
        field="device",
        about="Device of the job: cpu, cuda:0, ... Default: cpu.",
        metavar="NAME",
        default="",
    ),
    options.option(
        "Job",
        "--deadline",
        field="limits.deadline_ns",
        about="Seconds that the job may run before it is killed. Default: 300.",
        type=Seconds(),
    ),
    options.option(
        "Job",
        "--job-id",
        field="job_id",
        about="Id of the job; the same id attaches to it again, or gives its stored report. "
        "Default: a new one.",
        metavar="ID",
        default="",
    ),
    options.option(
        "Job",
        "--detach",
        field="keep_after_disconnect",
        about="Leave once the server has the job, which then goes on without a reader; haversack "
        "jobs shows it. With --server only.",
        is_flag=True,
    ),
]


@click.command(cls=AnswerCommand, short_help="Does it compute the same with checkpointing?")
@options.all_of(_WORKLOAD, _WEIGHTS, _PLAN, _JUDGING, _SPREAD, _RESUME, _JOB)
@options.all_of(FILES, options.SERVER, options.VERBOSE)
def verify(
    *,
    workload: str | None,
    allow: tuple[str, ...],
    listing: bool,
    weights: str,
    detach: bool,
    junit: str | None,
    json_file: str | None,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **job: Any,
) -> int:
    """Answer whether a run with activation checkpointing computes the same as one without.

    The workload runs plain, plain again and checkpointed, and is compared facet by facet: outputs,
    gradients, buffers, random state, side effects. The exit code is the verdict: 0 equivalent,
    4 different, 5 inconclusive, 1 failed. Progress goes to standard error.

    \b
    Examples:
      haversack verify --list
      haversack verify --workload gpt2-tiny
      haversack verify --workload mypkg.models:build \\
          --args '{"layers": 2}' --allow mypkg.
      haversack verify --workload gpt2-tiny --shard fsdp2 --world-size 2
      haversack verify --workload mypkg.models:build --allow mypkg. \\
          --plan plan.json
      haversack verify --workload resume-whole --resume 2:4 --saved-as full
    """
    if allow and server is not None:
        refuse("leave it out with --server: the server's own configuration decides", "allow")
    if listing:
        return _list(server, timeout, as_json)
    if workload is None:
        refuse("no workload; name one that --list shows, or package.module:factory", "workload")
    check_files(junit, json_file)
    from haversack.requests import verify_request

    if server is None and weights:
        weights = os.path.abspath(weights)
    request = verify_request(
        workload=workload, weights=weights, keep_after_disconnect=detach, **job
    )
    if detach:
        if server is None:
            refuse("needs --server: a job ends with a server inside this process", "server")
        if junit or json_file:
            refuse("there is no report yet; haversack jobs ID writes it later", "junit")
        return _leave(server, request, timeout, as_json)
    with connected(server, allow) as client:
        report = _follow(client, request, timeout)
    write_files(report, junit, json_file)

    from haversack.cli.render.verify import draw_report

    print_answer(report, as_json, lambda page: draw_report(page, report, verbose))
    return exits.of_answer(report)


def _list(server: str | None, timeout: float | None, as_json: bool) -> int:
    with connected(server) as client:
        answer = client.list_workloads(**deadline(timeout))

    from haversack.cli.render.verify import draw_workloads

    print_answer(answer, as_json, lambda page: draw_workloads(page, answer))
    return exits.Exit.OK


def _leave(server: str, request: "VerifyRequest", timeout: float | None, as_json: bool) -> int:
    """Hand a job to a server, and say where it stands."""
    with connected(server) as client:
        with contextlib.closing(client.verify_events(request, **deadline(timeout))) as events:
            job_id = next(events).job_id
        job = client.get_verify_job(job_id, **deadline(timeout))

    from haversack.cli.render.jobs import draw_jobs

    print_answer(job, as_json, lambda page: draw_jobs(page, [job]))
    return exits.Exit.OK


def _follow(client: "Client", request: "VerifyRequest", timeout: float | None) -> "VerifyReport":
    """Tell the progress of a job until its report; leaving early stops the job."""
    job_id = ""
    try:
        for event in client.verify_events(request, **deadline(timeout)):
            job_id = event.job_id
            if event.report is not None:
                return event.report
            note(f"haversack: {_progress(event)}")
    except KeyboardInterrupt:
        if job_id:
            client.cancel_verify(job_id)
        raise
    raise InternalError("the job's events ended without a report; ask again with its --job-id")


def _progress(event: "VerifyEvent") -> str:
    """Tell an event in a few words."""
    if event.queued is not None:
        before = f"{event.queued.position} before it" if event.queued.position else "it is next"
        return f"job {event.job_id} waits for {event.queued.device}, {before}"
    if event.running is not None:
        return f"job {event.job_id} runs on {event.running.device}"
    assert event.progress is not None
    return f"{event.progress.stage} done, {event.progress.completed} of {event.progress.total}"
