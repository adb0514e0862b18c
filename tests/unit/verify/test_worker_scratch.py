"""Files of a scratch folder are put back between runs, and places in open files with them."""

import os
import pathlib

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.leftovers import VALUES
from haversack_server.worker import scratch
from haversack_server.worker.scratch import Scratch, changes, statuses


def contents(folder: pathlib.Path) -> dict[str, str]:
    return changes(folder, {})


def test_what_a_run_changes_is_put_back(tmp_path: pathlib.Path) -> None:
    kept = {"one.txt": "one", "sub/two.txt": "two", VALUES: "the job's own"}
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
    (tmp_path / VALUES).write_text("written by a run")
    assert contents(tmp_path) != before
    made.put_back()
    assert contents(tmp_path) == before
    held = statuses(tmp_path)
    made.put_back()  # there is nothing to write
    assert changes(tmp_path, held) == {}
    assert sorted(os.listdir(tmp_path)) == [VALUES, "empty", "one.txt", "sub"]
    assert (tmp_path / VALUES).read_text() == "written by a run"


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


def test_links_pipes_and_empty_folders_of_the_factory_are_put_back(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data.txt").write_text("data")
    for name in ("removed", "turned", "replaced", "stays"):
        (tmp_path / name).symlink_to("data.txt")
    for name in ("empty", "nested/inner", "file_now", "link_now"):
        (tmp_path / name).mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "gone")
    names, made = sorted(tmp_path.rglob("*")), Scratch(tmp_path)
    made.put_back()
    assert sorted(tmp_path.rglob("*")) == names
    for name in ("removed", "turned", "replaced", "gone", "data.txt"):
        (tmp_path / name).unlink()
    for name in ("empty", "nested/inner", "nested", "file_now", "link_now"):
        (tmp_path / name).rmdir()
    (tmp_path / "turned").symlink_to("/elsewhere")
    (tmp_path / "replaced").write_text("a file")
    (tmp_path / "file_now").write_text("a file")
    (tmp_path / "link_now").symlink_to("/")
    (tmp_path / "data.txt").mkdir()
    made.put_back()
    assert sorted(tmp_path.rglob("*")) == names
    for name in ("removed", "turned", "replaced", "stays"):
        assert (tmp_path / name).readlink() == pathlib.Path("data.txt")
        assert (tmp_path / name).read_text() == "data"
    for name in ("empty", "nested/inner", "file_now", "link_now"):
        assert (tmp_path / name).is_dir()
        assert not (tmp_path / name).is_symlink()
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "gone").is_fifo()


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_everything_counts_towards_the_most_that_is_kept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(scratch, "_MOST_NAMES", 3)
    for number in range(2):
        place = tmp_path / f"a{number}"
        if kind == "folder":
            place.mkdir()
        else:
            place.symlink_to("z.txt")
    (tmp_path / VALUES).write_text("the job's own")
    (tmp_path / "z.txt").write_text("the factory's")
    assert Scratch(tmp_path).notes == ()
    (tmp_path / "zz.txt").write_text("the factory's")
    made = Scratch(tmp_path)
    assert "3 files" in made.notes[0]
    made.put_back()
    assert (tmp_path / "zz.txt").exists()


def test_all_is_removed_that_a_run_has_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_MOST_NAMES", 3)
    (tmp_path / "z.txt").write_text("the factory's")
    made = Scratch(tmp_path)
    for number in range(7):
        (tmp_path / f"a{number}").write_text("a run's")
    made.put_back()
    assert os.listdir(tmp_path) == ["z.txt"]
