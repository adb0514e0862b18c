"""``haversack estimate``: what a training run needs on each rank, and whether it fits."""

from typing import Any

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, note, print_answer
from haversack.cli.command import AnswerCommand

TRACE_TIMEOUT_S = 180.0  # a trace loads torch, and takes seconds
_USUAL = ("timeline", "advice", "min_gpus", "max_microbatch")


@click.command(cls=AnswerCommand, short_help="Will the run fit, and what uses the memory, when?")
@options.all_of(
    options.MODEL,
    options.STATES,
    options.DEVICES,
    options.TRAINING,
    options.RECOMPUTE,
    options.KERNELS,
    options.BUDGET,
    [options.WHAT_IF, options.MEASURED, options.BRIEF, options.TRACE, options.ALLOCATOR],
    options.SERVER,
    options.VERBOSE,
)
def estimate(
    *,
    brief: bool,
    trace: bool,
    allocator: bool,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **run: Any,
) -> int:
    """Answer what a training run needs on each rank: terms, phases, a peak with its margin.

    The exit code is the verdict: 0 fits, 3 tight, 4 does not fit, 5 unknown.

    \b
    Examples:
      haversack estimate --model config.json --gpus 8 --gpu-memory 80GiB \\
          --zero 3 --seq 8192 --microbatch 1
      haversack estimate --units units.json --gpus 4 --zero 3
    """
    from haversack.requests import estimate_request

    questions = ("brief",) if brief else ()
    also = [name for name, wanted in (("trace", trace), ("allocator", allocator)) if wanted]
    if also:
        questions = (*(questions or _USUAL), *also)
    if trace:
        timeout = timeout or TRACE_TIMEOUT_S
    request = estimate_request(**run, questions=questions)
    if trace and not as_json:
        note("haversack: traces two steps on the CPU, which takes seconds, up to a minute or so")
    with connected(server) as client:
        answer = client.estimate(request, **deadline(timeout))

    from haversack.cli.render.estimate import draw_estimate

    print_answer(answer, as_json, lambda page: draw_estimate(page, request, answer, verbose))
    return exits.of_answer(answer)
