"""``haversack explain-oom``: which tensor had the size that did not fit, when, and what broke."""

import sys
from typing import Any

import click

from haversack.cli import options
from haversack.cli.calls import connected, deadline, print_answer
from haversack.cli.command import AnswerCommand
from haversack.cli.exits import Exit
from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate
from haversack.questions import LARGEST_OOM_TEXT, OutOfMemory

_PHASE = [
    options.option(
        "Error",
        "--phase",
        field="oom.phase",
        about="Where the job was, such as forward, backward or optimizer: it orders the tensors. "
        "Default: not known.",
        metavar="PHASE",
        default="",
    )
]


@click.command(
    cls=AnswerCommand, short_help="What ran out of memory: which tensor, when, what broke?"
)
@click.argument("text", metavar="ERROR")
@options.all_of(_PHASE, options.RUN, options.SERVER, options.VERBOSE)
def explain_oom(
    *,
    text: str,
    phase: str,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    **run: Any,
) -> int:
    """Explain ERROR, the line of an out-of-memory error of PyTorch; - reads it from standard input.

    Give the settings of the run that failed. The tensors of that run are compared with the size
    that was asked for, and the other figures of the error with the estimate.

    The exit code is 0 for an explanation, 5 if nothing in the run or the error gives one.

    \b
    Examples:
      haversack explain-oom "CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0
          has a total capacity of ..." --model config.json --gpus 8 --zero 3 \\
          --seq 8192 --microbatch 1
      grep "Tried to allocate" job.log | head -1 |
          haversack explain-oom - --model config.json --seq 8192
    """
    from haversack.requests import estimate_request

    oom = OutOfMemory(text=_text(text), phase=phase)
    request = estimate_request(**run, oom=oom, questions=("advice",))
    with connected(server) as client:
        answer = client.estimate(request, **deadline(timeout))

    from haversack.cli.render.oom import draw_oom

    print_answer(answer, as_json, lambda page: draw_oom(page, answer, verbose))
    return _exit_code(answer)


def _text(given: str) -> str:
    if given != "-":
        return given
    try:
        return sys.stdin.read(LARGEST_OOM_TEXT + 1)
    except UnicodeDecodeError:
        raise InvalidRequestError("standard input is not text", field="oom.text") from None


def _exit_code(answer: Estimate) -> Exit:
    explained = answer.oom is not None and (answer.oom.matches or answer.oom.causes)
    return Exit.OK if explained else Exit.UNKNOWN
