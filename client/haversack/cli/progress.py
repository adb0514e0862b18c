"""A bar on the terminal while code is profiled: what is run, and how much of all is done.

A server inside this process logs how far it is, and one elsewhere does not say. Where standard
error is no terminal there is no bar: a log of CI is not written over.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

from haversack.cli.calls import listening

_WIDTH = 24  # characters of the bar
_ERASE = "\r\x1b[K"


@contextlib.contextmanager
def showing_progress(server: str | None) -> Iterator[None]:
    """Show a bar on standard error as long as the ``with`` lasts; nothing is left of it."""
    stream = sys.stderr
    if server is not None or stream is None or not stream.isatty():
        yield
        return
    bar = _Bar(stream)
    try:
        with listening("haversack_server.planner", bar):
            yield
    finally:
        bar.end()


class _Bar(logging.Handler):
    """Draws what a planner logs over what it logged before."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(logging.INFO)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Draw a record that counts; others are not of the bar."""
        counted = vars(record)
        if "steps" in counted:
            self._draw(_line(record.getMessage(), counted["done"], counted["steps"]))

    def end(self) -> None:
        """Leave an empty line to whatever is written next."""
        self._draw("")

    def _draw(self, line: str) -> None:
        self._stream.write(f"{_ERASE}{line}")
        self._stream.flush()


def _line(what: str, done: int, steps: int) -> str:
    full = _WIDTH * done // steps
    return f"haversack: [{'#' * full}{'.' * (_WIDTH - full)}] {done} of {steps}, {what}"
