"""``haversack profile``: what each block of a model costs under each of its options."""

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.progress import showing_progress
from haversack.cli.report_files import check_file
from haversack.cli.workload_options import BLOCKS, WORKLOAD
from haversack.errors import NotSupportedError
from haversack.reading import refuse

_OUTPUT = [
    options.option(
        "Answer",
        "--output",
        "-o",
        field="output",
        about="File for the profile, to plan with: haversack plan --profile. Without it the "
        "profile is printed.",
        metavar="FILE",
    )
]
_PRECISION = options.option(
    "Workload",
    "--precision",
    field="training.precision",
    about="Numbers of the step: fp32-bf16-compute for FSDP2's mixed precision (fp32 parameters, "
    "computed with in bf16), to plan with --gpus N --fsdp. Default: the types of the model's own "
    "code, which no other name changes.",
    metavar="NAME",
)


@click.command(cls=AnswerCommand, short_help="What does each block cost, saved or recomputed?")
@options.all_of(WORKLOAD, [BLOCKS, _PRECISION], _OUTPUT, options.SERVER, options.VERBOSE)
def profile(
    *,
    workload: str | None,
    args: str | None,
    blocks: tuple[str, ...] | None,
    precision: str | None,
    allow: tuple[str, ...],
    output: str | None,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Run the step of a model of yours under fake tensors, and list what its blocks cost.

    In a process of its own, once for each option: saved, recomputed, or with a selective policy.
    Nothing is computed and no memory taken beside the model's own, but by kernels of recurrent
    layers, which run once on zeros.

    \b
    Examples:
      haversack profile --workload mypkg.models:build --allow mypkg. -o p.json
      haversack plan --profile p.json --budget 12GiB
      haversack profile --workload mypkg.models:build --allow mypkg. \\
          --precision fp32-bf16-compute -o p.json
      haversack plan --profile p.json --budget 12GiB --gpus 8 --fsdp
    """
    if allow and server is not None:
        refuse("leave it out with --server: the server's own configuration decides", "allow")
    if workload is None:
        refuse("no workload; name package.module:factory", "workload")
    check_file(output, "output")
    from haversack.requests import plan_request

    request = plan_request(workload=workload, args=args, blocks=blocks or (), precision=precision)
    with connected(server, allow) as client, showing_progress(server):
        found = client.plan(request, **deadline(timeout)).profile
    if found is None:
        raise NotSupportedError("the server answered no profile; ask one of this version")
    if output is not None:
        from haversack.answer_files import write_profile

        write_profile(found, output)

    from haversack.cli.render.profile import draw_profile

    print_answer(found, as_json, lambda page: draw_profile(page, found, output, verbose))
    return exits.Exit.OK
