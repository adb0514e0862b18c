"""``haversack diff``: what a change does to a run's memory, for CI without a GPU."""

import contextlib
import json
from typing import Any

import click

from haversack.cli import options
from haversack.cli.calls import connected, deadline, note, open_stdout, write
from haversack.cli.command import AnswerCommand
from haversack.cli.differences import as_json as differences_as_json
from haversack.cli.differences import difference, read_threshold
from haversack.cli.exits import Exit
from haversack.cli.option_types import FieldType
from haversack.cli.saved import Side, read_side
from haversack.estimate import Estimate, EstimateRequest


class _Threshold(FieldType):
    name = "2%|BYTES"

    def read(self, text: str, field: str) -> Any:
        """Read a share or bytes."""
        return read_threshold(text, field)


_GATE = [
    options.option(
        "Answer",
        "--fail-above",
        "threshold",
        field="fail_above",
        about="Exit with 4 if the peak grows by more than this: a share of the base such as 2%, or "
        "bytes such as 512MiB. Without it the difference is shown only.",
        type=_Threshold(),
    )
]
_SETTINGS = [*options.DEVICES, *options.TRAINING, *options.RECOMPUTE, *options.KERNELS]


@click.command(cls=AnswerCommand, short_help="What does a change do to the memory? A gate for CI.")
@click.argument("base", metavar="BASE")
@click.argument("head", metavar="HEAD")
@options.all_of(_GATE, _SETTINGS, options.SERVER)
def diff(
    *,
    base: str,
    head: str,
    threshold: Any,
    server: str | None,
    timeout: float | None,
    as_json: bool,
    **run: Any,
) -> int:
    """Compare BASE with HEAD: the expected peak, its terms, the phases.

    Each is a file: an answer that `haversack estimate --json` saved; a request, a JSON object of
    the options of `haversack estimate` such as {"model": "config.json", "gpus": 8, "seq": 4096};
    or a Hugging Face config.json, for which the settings below are taken. What is no answer yet is
    answered now.

    The exit code is 0 within the threshold, 4 above it, 5 if the two cannot be compared.

    \b
    Examples:
      haversack diff base.json head.json --fail-above 2%
      haversack diff old/config.json new/config.json --gpus 8 --zero 3 \\
          --seq 8192 --microbatch 1 --fail-above 1GiB
    """
    with contextlib.ExitStack() as stack:
        ask = _Asking(stack, server, timeout)
        first, second = (
            read_side(path, name, run, ask) for name, path in (("base", base), ("head", head))
        )
    made = difference(first, second)
    if made is None:
        note(f"haversack: {_why_unknown(first, second)}")
        return Exit.UNKNOWN
    if as_json:
        write(json.dumps(differences_as_json(made, threshold), indent=2) + "\n")
    else:
        from haversack.cli.render.diff import draw_diff
        from haversack.cli.render.page import Page

        page = Page.of(open_stdout())
        draw_diff(page, made, threshold)
        write(page.text())
    return Exit.NO if made.fails(threshold) else Exit.OK


class _Asking:
    """Asks for estimates; the client is made when it is first needed: saved answers need none."""

    def __init__(
        self, stack: contextlib.ExitStack, server: str | None, timeout: float | None
    ) -> None:
        self._stack = stack
        self._server = server
        self._timeout = timeout
        self._client: Any = None

    def __call__(self, request: EstimateRequest) -> Estimate:
        if self._client is None:
            self._client = self._stack.enter_context(connected(self._server))
        answer: Estimate = self._client.estimate(request, **deadline(self._timeout))
        return answer


def _why_unknown(base: Side, head: Side) -> str:
    for side in (base, head):
        if side.answer.peak is None:
            reason = side.answer.reason or "it has model states only"
            return f"{side.name} has no peak to compare: {reason}"
    return "the two have nothing to compare"
