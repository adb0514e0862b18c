"""``haversack fit``: the fewest GPUs, the largest sizes and the cheapest change that fit."""

from typing import Any

import click

from haversack.cli import options
from haversack.cli.calls import connected, deadline, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.exits import Exit
from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateVerdict

_QUESTIONS = ("min-gpus", "max-microbatch", "max-seq", "cheapest-change")
SEARCH_TIMEOUT = 60.0  # seconds; searches lay out hundreds of runs


@click.command(cls=AnswerCommand, short_help="How many GPUs, which sizes, which change would fit?")
@options.all_of(options.RUN, options.SERVER, options.VERBOSE)
def fit(
    *, server: str | None, timeout: float | None, as_json: bool, verbose: bool, **run: Any
) -> int:
    """Answer what would fit: fewest GPUs, largest microbatch, longest sequence, cheapest change.

    Each is searched with everything else as it is, and fits only if the high end of its peak does.
    Changes are ordered by what they cost a step: recomputation and communication.

    The exit code is 0 if the run fits, or something of it would; 4 if nothing was found; 5 unknown.

    \b
    Example:
      haversack fit --model config.json --gpus 8 --gpu-memory 80GiB \\
          --zero 3 --seq 8192 --microbatch 2
    """
    from haversack.requests import estimate_request

    request = estimate_request(**run, questions=_QUESTIONS)
    device = request.device
    if request.budget is None and device.memory_bytes is None and not device.name:
        sentence = "nothing limits the run; give the usable bytes of a GPU, such as 80GiB"
        raise InvalidRequestError(sentence, field="device.memory_bytes")
    with connected(server) as client:
        answer = client.estimate(request, **deadline(timeout or SEARCH_TIMEOUT))

    from haversack.cli.render.fit import draw_fit

    print_answer(answer, as_json, lambda page: draw_fit(page, answer, verbose))
    return _exit_code(answer)


def _exit_code(answer: Estimate) -> Exit:
    if answer.peak is None or answer.verdict is EstimateVerdict.UNKNOWN:
        return Exit.UNKNOWN
    found = answer.min_gpus or answer.max_microbatch or answer.max_seq or answer.fitting_changes
    return Exit.OK if found or answer.verdict is EstimateVerdict.FITS else Exit.NO
