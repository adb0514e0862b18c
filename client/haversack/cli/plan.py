"""``haversack plan``: what to save and what to recompute under a budget."""

from typing import Any

import click

from haversack.cli import exits, files, options
from haversack.cli.calls import connected, deadline, print_answer, telling_of_compilation
from haversack.cli.command import AnswerCommand
from haversack.cli.device_options import devices
from haversack.cli.option_types import CandidatesFile, Whole

_CANDIDATES = [
    options.option(
        "Model",
        "--candidates",
        field="candidates recompute_candidates",
        about='Independent candidates instead of a model: {"size_bytes": [3, 2, 2], "gain": '
        '[5, 3, 3]}, or the mirror form {"freed_bytes": [...], "added_ns": [...]}. Needs --budget.',
        type=CandidatesFile(),
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
    _DEVICES,
    options.TRAINING,
    options.KERNELS,
    options.BUDGET,
    _PLANNING,
    options.SERVER,
    options.VERBOSE,
)
def plan(
    *,
    candidates: dict[str, Any] | None,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **run: Any,
) -> int:
    """Answer which activations are saved and which recomputed, so that the peak holds a budget.

    Activation checkpoints are meant (torch.utils.checkpoint), not files of weights. Without
    --budget the run is fitted to --gpu-memory. The exit code is 0 for a plan, 4 if
    there is none, 5 if a setting is not modelled.

    \b
    Examples:
      haversack plan --model config.json --gpus 8 --gpu-memory 80GiB \\
          --zero 3 --seq 8192 --microbatch 2
      haversack plan --candidates candidates.json --budget 4
    """
    from haversack.requests import plan_request

    if candidates is not None:
        mirror = files.mirrored(candidates)
        run["recompute_candidates" if mirror else "candidates"] = candidates
    request = plan_request(**run)
    with telling_of_compilation(server, as_json), connected(server) as client:
        answer = client.plan(request, **deadline(timeout))

    from haversack.cli.render.plan import draw_plan

    print_answer(answer, as_json, lambda page: draw_plan(page, request, answer, verbose))
    return exits.of_answer(answer)
