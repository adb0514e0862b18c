"""Folders that a job may have filled on purpose: nothing is followed, waited for or left."""

import os
import pathlib
from collections.abc import Callable

import pytest

from haversack_server.leftovers import open_regular, remove_folder, size_of, tail

DEPTH = 1500  # folders; Python's stack has 1000


def dig(folder: pathlib.Path) -> None:
    """Make folders within folders, by descriptors: no path is that long."""
    held = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("hole", dir_fd=held)
        below = os.open("hole", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = below
    os.close(held)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink(__file__, path),
        lambda path: os.symlink("nowhere", path),
        lambda path: None,
    ],
    ids=["pipe", "folder", "link", "link to nowhere", "nothing"],
)
def test_what_is_no_file_is_not_opened_and_has_no_last_words(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path], None]
) -> None:
    make(tmp_path / "output.txt")
    assert tail(tmp_path / "output.txt") == ""
    with pytest.raises(OSError, match=r"no regular file|Too many|No such"):
        open_regular(tmp_path / "output.txt")


def test_the_last_words_are_the_end_of_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "output.txt").write_text("first\n" + "x" * 5000 + "last")
    assert tail(tmp_path / "output.txt") == "x" * 4092 + "last"


def test_a_folder_of_any_depth_is_removed_and_what_links_lead_to_stays(
    tmp_path: pathlib.Path,
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    scratch = tmp_path / "scratch"
    for name in ("other", "hole/hole"):
        (scratch / name / "folder").mkdir(parents=True)
    (scratch / "link").symlink_to(kept)
    os.mkfifo(scratch / "pipe")
    dig(scratch / "hole" / "hole" / "folder")
    remove_folder(scratch)
    assert not scratch.exists()
    assert (kept / "file").exists()
    remove_folder(scratch)  # which is not there any more


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_folder(tmp_path / "link")
    assert (tmp_path / "kept").exists()


def test_the_size_of_a_folder_is_what_it_has_on_disk_and_links_lead_nowhere(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "scratch"
    (folder / "within").mkdir(parents=True)
    (folder / "within" / "kept").write_bytes(b"x" * 100_000)
    with (folder / "holes").open("wb") as file:
        file.truncate(2**40)
    os.symlink("/", folder / "root")
    size, entries = size_of(folder, 100)
    assert 100_000 <= size < 200_000
    assert entries == 4
    assert size_of(tmp_path / "nowhere", 100) == (0, 0)


def test_counting_a_folder_ends_where_there_are_too_many(tmp_path: pathlib.Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
    _, entries = size_of(tmp_path, 7)
    assert entries == 8


def test_a_file_of_several_names_counts_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    for number in range(20):
        os.link(tmp_path / "one", tmp_path / str(number))
    size, entries = size_of(tmp_path, 100)
    assert 100_000 <= size < 300_000
    assert entries == 21


def test_folders_that_are_too_deep_or_too_many_take_no_descriptors(tmp_path: pathlib.Path) -> None:
    dig(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    assert size_of(tmp_path, 2 * DEPTH)[1] == 2 * DEPTH + 1
    remove_folder(tmp_path)
    tmp_path.mkdir()
    for number in range(2000):
        (tmp_path / str(number)).mkdir()
    assert size_of(tmp_path, 10_000)[1] == 2000
    assert len(os.listdir("/proc/self/fd")) == before
