"""Files of a scratch folder are put back between runs, and places in open files with them."""

import os
import pathlib

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker import scratch
from haversack_server.worker.scratch import Scratch, changes, statuses


def contents(folder: pathlib.Path) -> dict[str, str]:
    return changes(folder, {})


def test_what_a_run_changes_is_put_back(tmp_path: pathlib.Path) -> None:
    kept = {"one.txt": "one", "sub/two.txt": "two", "values.pt": "the job's own"}
    (tmp_path / "sub").mkdir()
    (tmp_path / "empty").mkdir()
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    before, made = contents(tmp_path), Scratch(tmp_path)
    (tmp_path / "one.txt").write_text("another")
    (tmp_path / "sub" / "two.txt").unlink()
    (tmp_path / "sub").rmdir()
    (tmp_path / "new" / "deep").mkdir(parents=True)
    (tmp_path / "new" / "deep" / "x").write_text("x")
    (tmp_path / "link").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "values.pt").write_text("written by a run")
    assert contents(tmp_path) != before
    made.put_back()
    assert contents(tmp_path) == before
    held = statuses(tmp_path)
    made.put_back()  # there is nothing to write
    assert changes(tmp_path, held) == {}
    assert sorted(os.listdir(tmp_path)) == ["empty", "one.txt", "sub", "values.pt"]
    assert (tmp_path / "values.pt").read_text() == "written by a run"


def test_a_file_that_stays_open_is_read_on_from_where_it_was(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lines.txt").write_text("abc")
    with (tmp_path / "lines.txt").open("rb", buffering=0) as file:
        file.read(1)
        made = Scratch(tmp_path)
        assert file.read(1) == b"b"
        made.put_back()
        assert file.read(1) == b"b"


def test_more_than_is_kept_is_left_and_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MOST_BYTES", 3)
    (tmp_path / "large.txt").write_text("large")
    made = Scratch(tmp_path)
    assert "each other" in made.notes[0]
    (tmp_path / "new.txt").write_text("x")
    made.put_back()
    assert contents(tmp_path)["large.txt"] == "5 B"
    assert (tmp_path / "new.txt").exists()
