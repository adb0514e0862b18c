"""``haversack verify``: does the run with activation checkpointing compute the same thing?"""

import contextlib
import os
from typing import TYPE_CHECKING, Any

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, note, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.report_files import FILES, check_files, write_files
from haversack.cli.verify_options import (
    JOB,
    JUDGING,
    PLAN,
    REGIONS,
    RESUME,
    SPREAD,
    WEIGHTS,
    WORKLOAD,
)
from haversack.errors import InternalError
from haversack.reading import refuse

if TYPE_CHECKING:
    from haversack import Client
    from haversack.verify import VerifyEvent, VerifyReport, VerifyRequest


@click.command(cls=AnswerCommand, short_help="Does it compute the same with checkpointing?")
@options.all_of(WORKLOAD, WEIGHTS, PLAN, JUDGING, REGIONS, SPREAD, RESUME, JOB)
@options.all_of(FILES, options.SERVER, options.VERBOSE)
def verify(
    *,
    workload: str | None,
    allow: tuple[str, ...],
    listing: bool,
    weights: str | None,
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
    check_files(junit, json_file)
    request = _request(workload, weights, server, keep_after_disconnect=detach, **job)
    if detach:
        return _leave(_lasting(server, junit or json_file), request, timeout, as_json)
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


def _request(
    workload: str | None, weights: str | None, server: str | None, **job: Any
) -> "VerifyRequest":
    """Ask for a job; without a server weights are named from the folder of the caller."""
    if workload is None:
        refuse("no workload; name one that --list shows, or package.module:factory", "workload")
    from haversack.requests import verify_request

    if weights == "":
        refuse("the path is empty; give a safetensors file or a folder, or leave it out", "weights")
    if server is None and weights:
        weights = os.path.abspath(weights)
    return verify_request(workload=workload, weights=weights or "", **job)


def _lasting(server: str | None, file: str | None) -> str:
    """Give the server that a job is left to, or refuse what only a reader of its report has."""
    if server is None:
        refuse("needs --server: a job ends with a server inside this process", "server")
    if file:
        refuse("there is no report yet; haversack jobs ID writes it later", "junit")
    return server


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
