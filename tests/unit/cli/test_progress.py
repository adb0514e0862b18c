"""The bar while code is profiled: on a terminal only, and gone when the answer is there."""

import io
import logging
import sys

import pytest

from haversack.cli.progress import showing_progress

PLANNER = logging.getLogger("haversack_server.planner")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(server: str | None) -> None:
    with showing_progress(server):
        PLANNER.info("%s", "recompute", extra={"done": 2, "steps": 4})
        PLANNER.info("not of the bar")


def test_a_terminal_is_shown_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    told(server=None)
    erase = "\r\x1b[K"
    bar = f"haversack: [{'#' * 12}{'.' * 12}] 2 of 4, recompute"
    assert terminal.getvalue() == f"{erase}{bar}{erase}"
    PLANNER.info("%s", "later", extra={"done": 3, "steps": 4})
    assert terminal.getvalue() == f"{erase}{bar}{erase}"
    assert PLANNER.level == logging.NOTSET


def test_a_log_and_another_server_have_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    file, terminal = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    told(server=None)
    monkeypatch.setattr(sys, "stderr", terminal)
    told(server="localhost:1")
    assert (file.getvalue(), terminal.getvalue()) == ("", "")
