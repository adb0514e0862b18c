"""``haversack plan``: what to save and what to recompute under a budget."""

from typing import Any

import click

from haversack.cli import exits, files, measured, options
from haversack.cli.calls import connected, deadline, print_answer, telling_of_compilation
from haversack.cli.command import AnswerCommand
from haversack.cli.device_options import devices
from haversack.cli.option_types import CandidatesFile, Whole
from haversack.cli.progress import showing_progress
from haversack.cli.report_files import check_file
from haversack.cli.workload_options import BLOCKS, WORKLOAD
from haversack.reading import refuse

_CANDIDATES = [
    options.option(
        "Model",
        "--candidates",
        field="candidates recompute_candidates",
        about='Independent candidates instead of a model: {"size_bytes": [3, 2, 2], "gain": '
        '[5, 3, 3]}, or the mirror form {"freed_bytes": [...], "added_ns": [...]}. Needs --budget.',
        type=CandidatesFile(),
    ),
    options.option(
        "Model",
        "--profile",
        field="profile",
        about="A profile instead of a model, as haversack profile -o writes it, or a plan of code, "
        "as haversack plan -o does; its ranks count if none are named. Needs --budget.",
        metavar="FILE",
    ),
    options.option(
        "Plan",
        "--measured",
        "measurements",
        field="measurements",
        about="A figure read on a real step of the plan that --profile names: peak=11.8GiB, or of "
        "a phase, 'backward=11.8GiB'. What it needed beyond the prediction is kept free; may be "
        "repeated.",
        metavar=measured.METAVAR,
        callback=measured.read_all,
        multiple=True,
    ),
]
_OUTPUT = [
    options.option(
        "Answer",
        "--output",
        "-o",
        field="output",
        about="File for the plan as well, to be read with haversack.read_plan. Without it the plan "
        "is only printed.",
        metavar="FILE",
    )
]
_DEVICES = devices(
    memory=", which the run is fitted to. Needed without --budget.",
    prefetch="0, beyond what the schedule does by itself",
)
_PLANNING = [
    options.option(
        "Budget",
        "--fit-expected",
        field="fit_expected",
        about="Fit the expected peak instead of its high end: less recomputation, more risk.",
        is_flag=True,
    ),
    options.option(
        "Answer",
        "--frontier-points",
        field="frontier_points",
        about="Budgets to answer beside the one asked for, at most 64. Default: 8.",
        type=Whole(),
    ),
    options.option(
        "Plan",
        "--must-save",
        field="constraints.must_save",
        about="Block that is saved whatever it costs, such as model.layers.0; may be repeated.",
        multiple=True,
        metavar="BLOCK",
    ),
    options.option(
        "Plan",
        "--must-recompute",
        field="constraints.must_recompute",
        about="Block that is recomputed, wholly or in part; may be repeated.",
        multiple=True,
        metavar="BLOCK",
    ),
    options.option(
        "Plan",
        "--equal-treatment",
        field="constraints.equal_treatment",
        about="Treat equal blocks and all ranks alike; the answer says what that costs.",
        is_flag=True,
    ),
    options.option(
        "Plan",
        "--without-segments",
        field="constraints.without_segments",
        about="Leave checkpoints around several blocks out.",
        is_flag=True,
    ),
    options.option(
        "Plan",
        "--rank",
        field="rank",
        about="Plan for the ranks that are as this one, such as those of its pipeline stage. "
        "Default: all, each class by its own plan.",
        type=Whole(),
    ),
    options.option(
        "Answer",
        "--state-limit",
        field="state_limit",
        about="Most states of an exact solve; past it the plan is feasible, with its gap. "
        "Default: the server's own.",
        type=Whole(),
    ),
]


@click.command(cls=AnswerCommand, short_help="What to save, what to recompute under a budget?")
@options.all_of(
    options.MODEL,
    _CANDIDATES,
    WORKLOAD,
    [BLOCKS],
    _DEVICES,
    options.TRAINING,
    options.KERNELS,
    options.BUDGET,
    _PLANNING,
    _OUTPUT,
    options.SERVER,
    options.VERBOSE,
)
def plan(
    *,
    candidates: dict[str, Any] | None,
    allow: tuple[str, ...],
    blocks: tuple[str, ...] | None,
    output: str | None,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **run: Any,
) -> int:
    """Answer which activations are saved and which recomputed, so that the peak holds a budget.

    Activation checkpoints are meant (torch.utils.checkpoint), not files of weights. Without
    --budget the run is fitted to --gpu-memory. A model of your own is named by --workload: it is
    profiled in a process of its own, and its planned step is run as a whole under fake tensors.
    The exit code is 0 for a plan, 4 if there is none or a step was above the budget, 5 if
    a setting is not modelled.

    \b
    Examples:
      haversack plan --model config.json --gpus 8 --gpu-memory 80GiB \\
          --zero 3 --seq 8192 --microbatch 2
      haversack plan --candidates candidates.json --budget 4
      haversack plan --workload mypkg.models:build --allow mypkg. \\
          --budget 12GiB -o plan.json
    """
    if allow and server is not None:
        refuse("leave it out with --server: the server's own configuration decides", "allow")
    check_file(output, "output")
    from haversack.requests import plan_request

    if candidates is not None:
        mirror = files.mirrored(candidates)
        run["recompute_candidates" if mirror else "candidates"] = candidates
    request = plan_request(blocks=blocks or (), **run)
    with (
        telling_of_compilation(server, as_json),
        connected(server, allow) as client,
        showing_progress(server),
    ):
        answer = client.plan(request, **deadline(timeout))
    if output is not None:
        from haversack.answer_files import write_plan

        write_plan(answer, output)

    from haversack.cli.render.plan import draw_plan

    print_answer(answer, as_json, lambda page: draw_plan(page, request, answer, verbose))
    return exits.of_answer(answer)
