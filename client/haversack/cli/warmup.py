"""``haversack warmup``: compiles the kernels before anybody waits for them, and says if they stay.

The kernels run in a process of their own, as those of a server do: a second one is the proof.
"""

import importlib.util
import json
import subprocess
import sys
from typing import Any

import click

from haversack.cli import options
from haversack.cli.calls import note, write
from haversack.cli.command import AnswerCommand
from haversack.cli.exits import Exit
from haversack.errors import InternalError, MissingExtraError

_NEEDS = ("numpy", "numba")
_OPTIONS = [
    options.option(
        "Answer",
        "--json",
        "as_json",
        about="Print the answer as one JSON object on standard output.",
        is_flag=True,
    ),
]


@click.command(cls=AnswerCommand, short_help="Compile the kernels, so that no start waits for it.")
@options.all_of(_OPTIONS)
def warmup(*, as_json: bool) -> int:
    """Compile the kernels of Plan, and tell whether the next start will load them.

    They are kept in the folder that NUMBA_CACHE_DIR names, else beside the package, in the user's
    cache or in a private folder for temporary files: the first that can be written, and by nobody
    else. Run it as the user who serves, on the same kind of processor.

    The exit code is 0 if the next start loads them, 1 if it compiles them again.

    \b
    Example:
      haversack warmup --json
    """
    for name in _NEEDS:
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"the kernels need {name}: pip install 'haversack[server]'")
    answer = _start()
    kept = answer["directory"] is not None
    next_start_loads = kept and (not answer["compiled"] or not _start()["compiled"])
    answer["next_start_loads"] = next_start_loads
    write(json.dumps(answer, indent=2) + "\n" if as_json else _text(answer))
    return Exit.OK if next_start_loads else Exit.FAILED


def _start() -> dict[str, Any]:
    """Have a new process load or compile every kernel; gives its report."""
    # -P: nothing in the current folder stands in for a package.
    command = [sys.executable, "-P", "-m", "haversack_kernels"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise InternalError(f"the kernels did not compile: exit code {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _text(answer: dict[str, Any]) -> str:
    if answer["next_start_loads"]:
        outlook = "loads them from there"
    else:
        outlook = "compiles them again"
        for reason in answer["passed_over"]:
            note(f"haversack: passed over {reason}")
    return (
        f"compiled    {answer['compiled']} kernels in {answer['compile_seconds']:.1f} s\n"
        f"loaded      {answer['loaded']}\n"
        f"kept in     {answer['directory'] or 'no folder'}\n"
        f"next start  {outlook}\n"
    )
