"""What a step does outside of memory, as an audit hook hears it."""

import decimal
import gc
import logging
import os
import pathlib
import socket
import sys
import tempfile
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.leftovers import VALUES  # noqa: E402
from haversack_server.worker.effects import Effects  # noqa: E402
from haversack_server.worker.switches import switches  # noqa: E402

QUIET = {"printed text": "0 characters"}


def heard(effects: Effects) -> dict[str, str]:
    """Leave out switches, which always have a position."""
    positions = switches()
    return {name: said for name, said in effects.values().items() if name not in positions}


def test_text_is_counted_and_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Effects() as effects:
        print("ab")
        print("a warning", file=sys.stderr)
    assert heard(effects) == {"printed text": "3 characters"}
    assert capsys.readouterr().out == "ab\n"


def test_files_are_named_where_they_are_written(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log.txt"
    with Effects() as effects:
        log.write_text("one")
        log.write_text("two")
        log.read_text()
        (tmp_path / "module.pyc").write_text("compiled")
        os.close(os.open(tmp_path / "low", os.O_CREAT | os.O_RDWR))
    assert heard(effects) == QUIET | {
        f"file opened for writing: {log}": "2 times",
        f"file opened for writing: {tmp_path / 'low'}": "1 times",
    }


def test_sockets_are_named_by_their_address() -> None:
    with Effects() as effects, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
    assert heard(effects) == QUIET | {"socket bound to ('127.0.0.1', 0)": "1 times"}


def test_nothing_is_heard_after_the_end(tmp_path: pathlib.Path) -> None:
    with Effects() as effects:
        pass
    (tmp_path / "late").write_text("late")
    print("late")
    assert heard(effects) == QUIET


def test_names_that_are_random_are_told_by_their_kind(tmp_path: pathlib.Path) -> None:
    with Effects() as effects:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            pathlib.Path(folder, "a.txt").write_text("a")
        descriptor, _ = tempfile.mkstemp(dir=tmp_path)
    os.close(descriptor)
    assert heard(effects) == QUIET | {
        "folder made: a temporary folder": "1 times",
        "file opened for writing: a temporary folder": "1 times",
        "folder removed: a temporary folder": "1 times",
        "file removed: a.txt": "1 times",
        "file opened for writing: a temporary file": "1 times",
    }


def test_what_lies_in_the_folder_is_seen_whoever_wrote_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "old.txt").write_text("as it was")
    (tmp_path / VALUES).write_text("the job's own")
    descriptor = os.open(tmp_path / "log.bin", os.O_CREAT | os.O_WRONLY)
    with Effects(tmp_path) as effects:
        os.write(descriptor, b"low")
        (tmp_path / VALUES).write_text("another")
        pathlib.Path(os.fsencode(tmp_path).decode(), "old.txt").unlink()
        with open(os.fsencode(tmp_path / "bytes.txt"), "wb") as file:
            file.write(b"x")
    os.close(descriptor)
    found = heard(effects)
    assert found["file log.bin"].startswith("3 B ")
    assert found["file old.txt"] == "removed"
    assert found["file opened for writing: bytes.txt"] == "1 times"
    assert f"file {VALUES}" not in found


def test_files_that_torch_writes_itself_are_counted(tmp_path: pathlib.Path) -> None:
    with Effects(tmp_path) as effects:
        torch.save(torch.ones(1), tmp_path / "kept.pt")
        torch.save(torch.ones(1), tmp_path / "kept.pt")
    assert heard(effects)["file opened for writing: kept.pt"] == "2 times"
    assert torch.load(tmp_path / "kept.pt", weights_only=True) == 1


def test_bytes_that_pass_by_the_interpreter_are_counted() -> None:
    reading, writing = os.pipe()
    one, other = socket.socketpair()
    with Effects() as effects, one, other:
        os.write(writing, b"raw")
        one.send(b"a")
        one.sendall(b"bc")
        assert (os.read(reading, 9), other.recv(9)) == (b"raw", b"abc")
    os.write(writing, b"late")
    assert heard(effects) == QUIET | {
        f"bytes written to descriptor {writing}": "1 times",
        "socket sent to its peer": "2 times",
    }
    os.close(reading)
    os.close(writing)


def test_records_variables_and_datagrams_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Logger, "handle", logging.Logger.handle)
    monkeypatch.delenv("HAVERSACK_THEIRS", raising=False)
    quiet = logging.getLogger("theirs.quiet")
    with Effects() as effects, socket.socket(type=socket.SOCK_DGRAM) as sending:
        logging.getLogger("theirs").warning("one")
        logging.getLogger("torch.theirs").warning("one")
        quiet.debug("none")
        monkeypatch.setenv("HAVERSACK_THEIRS", "1")
        sending.sendto(b"x", ("127.0.0.1", 9))
    assert heard(effects) == QUIET | {
        "records logged by theirs": "1 times",
        "environment variable HAVERSACK_THEIRS": "'1'",
        "socket sent to ('127.0.0.1', 9)": "1 times",
    }


def test_a_precision_that_is_set_for_one_backend_has_a_position() -> None:
    matmul: Any = torch.backends.cuda.matmul
    before, own = switches(), matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        after = switches()
    finally:
        matmul.fp32_precision = own
    changed = {name for name, said in after.items() if said != before[name]}
    assert changed == {"torch float32 matmul precision"}
    assert after["torch float32 matmul precision"].startswith("cuda tf32, mkldnn ")
    assert switches() == before


def test_switches_have_names_and_positions() -> None:
    before = switches()
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            after = switches()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    assert {name for name in before if before[name] != after[name]} == {
        "torch default dtype",
        "torch deterministic algorithms",
        "torch autocast on the CPU",
    }
    assert switches() == before


def test_switches_of_python_have_positions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = switches()
    monkeypatch.setattr(sys, "path", [*sys.path, "more"])
    gc.disable()
    try:
        with decimal.localcontext(prec=9), numpy.errstate(all="raise"):
            assert decimal.Decimal(1) / 3  # rounds, which sets a flag and no switch
            after = switches()
    finally:
        gc.enable()
    monkeypatch.undo()
    assert {name for name in before if before[name] != after[name]} == {
        "folders of modules",
        "collection of garbage",
        "errors of numpy",
        "decimal numbers",
    }
    assert decimal.Decimal(1) / 3
    assert switches() == before
