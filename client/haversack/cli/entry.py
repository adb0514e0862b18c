"""The entry point: reads the command line, runs a command, and gives an exit code.

An error is one line on standard error, a line for each fault where a request has several, and never
a traceback; HAVERSACK_DEBUG=1 asks for one.
"""

import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NoReturn

import click

from haversack.cli.calls import is_debugging, note, write
from haversack.cli.command import WrittenHelp
from haversack.cli.devices import devices
from haversack.cli.diff import diff
from haversack.cli.estimate import estimate
from haversack.cli.exits import MEANINGS, Exit, of_error
from haversack.cli.explain_oom import explain_oom
from haversack.cli.fit import fit
from haversack.cli.hints import MOST_FAULTS
from haversack.cli.jobs import jobs
from haversack.cli.plan import plan
from haversack.cli.profile import profile
from haversack.cli.serve import serve
from haversack.cli.verify import verify
from haversack.cli.warmup import warmup
from haversack.cli.whatif import whatif
from haversack.errors import HaversackError, InternalError, InvalidRequestError

ISSUES = "https://github.com/haversack/haversack/issues"

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<5}{meaning}" for code, meaning in MEANINGS.items()
)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import haversack

        write(f"haversack {haversack.__version__}\n")
        ctx.exit()


class _InOrder(WrittenHelp, click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands as they were added: the question a reader has first comes first."""
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option(
    "--version", is_flag=True, callback=_print_version, is_eager=True, expose_value=False,
    help="Print the version.",
)  # fmt: skip
def haversack_command() -> None:
    """Fit a training run into its memory, and prove that it still computes the same thing.

    Without --server a command asks a server inside its own process: no GPU, no network.
    """


for _command in (
    estimate,
    fit,
    whatif,
    explain_oom,
    diff,
    profile,
    plan,
    verify,
    jobs,
    devices,
    serve,
    warmup,
):
    haversack_command.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    # An end that Python does not see leaves the folder of a server in this process behind.
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(arguments))


def _terminate(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
    raise SystemExit(128 + number)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and give its exit code."""
    try:
        given = None if arguments is None else list(arguments)
        done = haversack_command.main(given, prog_name="haversack", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as empty:
        note(empty.format_message())
        return Exit.INVALID
    except click.ClickException as wrong:
        note(f"haversack: {_usage(wrong)}")
        return Exit.INVALID
    except (click.Abort, KeyboardInterrupt):
        note("haversack: interrupted")
        return Exit.INTERRUPTED
    except HaversackError as wrong:
        return _failed(wrong)
    except Exception as wrong:
        return _unexpected(wrong)
    return int(done or 0)


def _failed(error: HaversackError) -> int:
    for line in _lines(error):
        note(f"haversack: {_one_line(line)}")
    _trace(error)
    return of_error(error)


def _lines(error: HaversackError) -> Iterator[str]:
    """Tell each fault, with the option that it came from: a note for each, in their order."""
    if isinstance(error, InternalError):
        yield f"{error} (HAVERSACK_DEBUG=1 shows more)"
        return
    hints = getattr(error, "__notes__", [])
    if not isinstance(error, InvalidRequestError):
        yield f"{error} ({hints[0]})" if hints and hints[0] else str(error)
        return
    told = error.violations[:MOST_FAULTS]
    for fault, hint in zip_longest(told, hints[: len(told)], fillvalue=""):
        yield f"{fault} ({hint})" if hint else str(fault)
    if error.total > len(told):
        yield f"and {error.total - len(told)} more"


def _unexpected(error: Exception) -> int:
    kind = type(error).__name__
    note(
        f"haversack: an error of ours, {kind}: {_one_line(str(error))}; please report it at "
        f"{ISSUES} with what HAVERSACK_DEBUG=1 prints"
    )
    _trace(error)
    return Exit.FAILED


def _usage(error: click.ClickException) -> str:
    sentence = _one_line(error.format_message()).rstrip(".")
    ctx = getattr(error, "ctx", None)
    return f"{sentence}; see {ctx.command_path} --help" if ctx else sentence


def _one_line(sentence: str) -> str:
    return " ".join(sentence.split())


def _trace(error: BaseException) -> None:
    if is_debugging():
        traceback.print_exception(error)
