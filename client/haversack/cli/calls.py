"""Asking, and printing the answer: the part that is the same in every command.

Loads gRPC and rich only when they are needed, so that help and errors are fast.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from haversack.errors import HaversackError

if TYPE_CHECKING:
    from haversack import Client
    from haversack.cli.render.page import Page


_CANNOT_WRITE = "cannot write to standard output"


@contextlib.contextmanager
def connected(server: str | None, allow: Sequence[str] = ()) -> Iterator["Client"]:
    """Connect to a server, or start one inside this process."""
    import haversack

    if server is None and not is_debugging():
        # A fault in there is told in one sentence; what its server logs is for HAVERSACK_DEBUG.
        logging.getLogger("haversack_server").addHandler(logging.NullHandler())
    with haversack.connect(server, allow=tuple(allow)) as client:
        yield client


@contextlib.contextmanager
def telling_of_compilation(server: str | None, as_json: bool) -> Iterator[None]:
    """Write a line to standard error once kernels are compiled in this process.

    Only before a page, without a server: a program that reads JSON does not wonder.
    """
    if server is not None or as_json:
        yield
        return
    with listening("haversack_kernels.cache", _Teller(logging.INFO)):
        yield


@contextlib.contextmanager
def listening(name: str, handler: logging.Handler) -> Iterator[None]:
    """Give a handler what the logger of that name says as long as the ``with`` lasts."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Teller(logging.Handler):
    """Writes what a log says to standard error, as the command's own words."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"haversack: {record.getMessage()} (`haversack warmup` compiles all of them ahead)")


def deadline(timeout: float | None) -> dict[str, Any]:
    """Give the keyword for a timeout, if one was named; the client has its own otherwise."""
    return {} if timeout is None else {"timeout": timeout}


def print_answer(answer: Any, as_json: bool, draw: Callable[["Page"], None]) -> None:
    """Print an answer as JSON, or as ``draw`` puts it on a page."""
    if as_json:
        write(json_of(answer))
        return
    from haversack.cli.render.page import Page

    page = Page.of(open_stdout())
    draw(page)
    write(page.text())


def json_of(answer: Any) -> str:
    """Write the message of an answer: proto field names, default values too."""
    from google.protobuf import json_format

    from haversack import wire

    text = json_format.MessageToJson(
        wire.message_of(answer),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    return text + "\n"


def write(text: str) -> None:
    """Write to standard output; a reader that went away (``| head``) is no error.

    Raises HaversackError where it cannot be written: a full disk, an output that is closed.
    """
    output = open_stdout()
    encoding = output.encoding or "utf-8"
    try:
        output.write(text.encode(encoding, "replace").decode(encoding))
        output.flush()
    except BrokenPipeError:
        _let_go(output)
    except OSError as wrong:
        _let_go(output)
        raise HaversackError(
            f"{_CANNOT_WRITE}: {wrong.strerror or type(wrong).__name__}"
        ) from wrong


def open_stdout() -> TextIO:
    """Give standard output, or say that there is none."""
    if sys.stdout is None:
        raise HaversackError(f"{_CANNOT_WRITE}: it is closed")
    return sys.stdout


def _let_go(output: TextIO) -> None:
    # What Python still flushes at its end goes nowhere, instead of failing there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def is_debugging() -> bool:
    """Tell whether HAVERSACK_DEBUG asks for tracebacks and logs."""
    return os.environ.get("HAVERSACK_DEBUG", "") not in ("", "0")


def note(text: str) -> None:
    """Write a line to standard error."""
    if sys.stderr is not None:  # print takes None for standard output
        print(text, file=sys.stderr, flush=True)
