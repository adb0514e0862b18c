"""``haversack whatif``: what each setting would change: memory, recomputation, communication."""

from typing import Any

import click

from haversack.cli import options, what_if
from haversack.cli.calls import connected, deadline, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.exits import Exit
from haversack.cli.fit import SEARCH_TIMEOUT

_VARIATIONS = [
    options.option(
        "Answer",
        "--knob",
        "knobs",
        field="knobs what_ifs",
        about="A setting with its values, such as 'zero=2,3' or fsdp, each a variation; may be "
        "repeated. Without one, and without --what-if: every setting that is open to the run.",
        metavar="'OPTION=VALUE,...'",
        callback=what_if.read_knobs,
        multiple=True,
    ),
    options.WHAT_IF,
]


@click.command(cls=AnswerCommand, short_help="What would each setting change, and at what cost?")
@options.all_of(options.RUN, _VARIATIONS, options.SERVER, options.VERBOSE)
def whatif(
    *,
    knobs: tuple[dict[str, Any], ...],
    what_ifs: tuple[dict[str, Any], ...],
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **run: Any,
) -> int:
    """Answer what every setting would change: the peak, and the collectives of a step.

    Rows are sorted by what they save. "Sends" is what each rank sends in an optimizer step by ring
    collectives, "recomputes" the time that a step recomputes, by a roofline.

    The exit code is 0, or 5 if the run itself has no answer.

    \b
    Examples:
      haversack whatif --model config.json --gpus 8 --gpu-memory 80GiB \\
          --zero 3 --seq 8192 --microbatch 2
      haversack whatif --model config.json --gpus 8 --seq 4096 \\
          --knob zero=1,2,3 --knob recompute=full --what-if 'zero=3 tp=2'
    """
    from haversack.requests import estimate_request

    named = (*knobs, *what_ifs)
    questions = ("collectives",) if named else ("collectives", "knobs")
    request = estimate_request(**run, what_ifs=named, questions=questions)
    with connected(server) as client:
        answer = client.estimate(request, **deadline(timeout or SEARCH_TIMEOUT))

    from haversack.cli.render.what_ifs import draw_table

    print_answer(answer, as_json, lambda page: draw_table(page, answer, verbose))
    return Exit.OK if answer.peak is not None else Exit.UNKNOWN
