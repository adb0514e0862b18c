"""What a step does outside of memory, as an audit hook hears it."""

import os
import pathlib
import socket
import sys

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker.effects import Effects

QUIET = {"printed text": "0 characters"}


def test_text_is_counted_and_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Effects() as effects:
        print("ab")
        print("a warning", file=sys.stderr)
    assert effects.values() == {"printed text": "3 characters"}
    assert capsys.readouterr().out == "ab\n"


def test_files_are_named_where_they_are_written(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log.txt"
    with Effects() as effects:
        log.write_text("one")
        log.write_text("two")
        log.read_text()
        (tmp_path / "module.pyc").write_text("compiled")
        os.close(os.open(tmp_path / "low", os.O_CREAT | os.O_RDWR))
    assert effects.values() == QUIET | {
        f"file opened for writing: {log}": "2 times",
        f"file opened for writing: {tmp_path / 'low'}": "1 times",
    }


def test_sockets_are_named_by_their_address() -> None:
    with Effects() as effects, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
    assert effects.values() == QUIET | {"socket bound to ('127.0.0.1', 0)": "1 times"}


def test_nothing_is_heard_after_the_end(tmp_path: pathlib.Path) -> None:
    with Effects() as effects:
        pass
    (tmp_path / "late").write_text("late")
    print("late")
    assert effects.values() == QUIET
