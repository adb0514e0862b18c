"""``haversack jobs``: the Verify jobs of a server, those that run and stored reports."""

from typing import TYPE_CHECKING

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, note, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.option_types import Address, Whole
from haversack.cli.report_files import FILES, check_files, write_files
from haversack.reading import refuse

if TYPE_CHECKING:
    from haversack import Client
    from haversack.verify_jobs import VerifyJob

_CHOOSING = [
    options.option(
        "Jobs",
        "--state",
        "states",
        field="states",
        about="State to list: queued, running, finished, cancelled or lost; may be repeated. "
        "Default: all.",
        metavar="STATE",
        multiple=True,
    ),
    options.option(
        "Jobs",
        "--limit",
        field="page_size",
        about="Most jobs to list, up to 1000. Default: 100.",
        type=Whole(),
    ),
    options.option(
        "Jobs",
        "--cancel",
        field="cancel",
        about="Stop the job that is named, and tell where it stands.",
        is_flag=True,
    ),
]
_SERVER = [
    options.option(
        "Answer",
        "--server",
        field="server",
        about="Server to ask. Needed: one inside this process knows no jobs of others.",
        type=Address(),
    ),
    *options.SERVER[1:],
]


@click.command(cls=AnswerCommand, short_help="Which Verify jobs does a server know?")
@click.argument("job_id", metavar="[ID]", required=False)
@options.all_of(_CHOOSING, FILES, _SERVER, options.VERBOSE)
def jobs(
    *,
    job_id: str | None,
    states: tuple[str, ...],
    limit: int | None,
    cancel: bool,
    junit: str | None,
    json_file: str | None,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """List the Verify jobs of a server, the latest first; with an ID, show that job's report.

    With an ID the exit code is the verdict: 0 equivalent, 4 different, 5 inconclusive or not over
    yet, 1 failed. Reports are kept for a while, which the server's operator decides.

    \b
    Examples:
      haversack jobs --server localhost:50051
      haversack jobs ID --server localhost:50051 --junit report.xml
    """
    if server is None:
        refuse("needs --server: one inside this process knows no jobs of others", "server")
    if job_id is None and (cancel or junit or json_file):
        refuse("name the job: haversack jobs ID", "job_id")
    check_files(junit, json_file)
    with connected(server) as client:
        if job_id is None:
            return _list(client, states, limit, timeout, as_json)
        if cancel:
            client.cancel_verify(job_id, **deadline(timeout))
        job = client.get_verify_job(job_id, **deadline(timeout))
    if job.report is not None:
        write_files(job.report, junit, json_file)
    return _show(job, as_json, verbose)


def _list(
    client: "Client",
    states: tuple[str, ...],
    limit: int | None,
    timeout: float | None,
    as_json: bool,
) -> int:
    answer = client.list_verify_jobs(states=states, page_size=limit, **deadline(timeout))

    from haversack.cli.render.jobs import draw_jobs

    print_answer(answer, as_json, lambda page: draw_jobs(page, answer.jobs))
    if answer.next_page_token and not as_json:
        note("haversack: there are more; --limit shows up to 1000, --state fewer")
    return exits.Exit.OK


def _show(job: "VerifyJob", as_json: bool, verbose: bool) -> int:
    """Show a job: its report, or where it stands."""
    from haversack.cli.render.jobs import draw_jobs
    from haversack.cli.render.verify import draw_report

    report = job.report
    if report is None:
        print_answer(job, as_json, lambda page: draw_jobs(page, [job]))
        return exits.Exit.UNKNOWN
    print_answer(job, as_json, lambda page: draw_report(page, report, verbose))
    return exits.of_answer(report)
