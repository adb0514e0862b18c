"""Files of a job's scratch folder: what a run has changed in them, and how they were before it.

Runs share the folder, so what one leaves there the next would find. Files are put back as the
workload's factory left them, links, pipes and folders with them, and so is the place in every file
that it left open: those are shared with forked runs.
"""

import contextlib
import itertools
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from haversack.units import format_bytes
from haversack_server.leftovers import OUTPUT, VALUES, open_regular, remove_folder
from haversack_server.worker.gpu_driver import CACHE
from haversack_server.worker.rng import digest

MOST_BYTES = 2**26  # kept in memory; read after a step
_OURS = re.compile(  # what jobs keep there, and a GPU's driver
    rf"{re.escape(OUTPUT)}|{re.escape(VALUES)}|[\w-]+\.ranks(\.\d+)?|{re.escape(CACHE)}(/.*)?"
)
_MOST_NAMES = 10_000  # of files, folders, links and the like
_LOWEST_OF_THE_JOB = 3
Status = tuple[int, ...]
Told = Callable[[str, bytes], bytes | None]  # of the name and content of a file
Mark = tuple[int, Status | str]  # kind of entry, and what shows that it is another one


def _all_of_it(_: str, content: bytes) -> bytes:
    return content


def statuses(folder: pathlib.Path) -> dict[str, Status]:
    """Give what shows whether a file was written, for every regular file; reads none."""
    entries = itertools.islice(_entries(folder), _MOST_NAMES)
    return {name: _status(each) for name, each in entries if stat.S_ISREG(each.st_mode)}


def changes(
    folder: pathlib.Path, before: Mapping[str, Status], told: Told = _all_of_it
) -> dict[str, str]:
    """Spell files that were written or removed: by size and content, by size beyond what is read.

    ``before`` are the statuses that they had; ``told`` gives what of a content is spelled, None for
    nothing but its size.
    """
    now = statuses(folder)
    changed = sorted(n for n in now.keys() | before.keys() if now.get(n) != before.get(n))
    spelled, left = {}, MOST_BYTES
    for name in changed:
        if name not in now:
            spelled[name] = "removed"
            continue
        size, *_ = now[name]
        content = told(name, _read(folder / name)) if size <= left else None
        left -= size if size <= left else 0
        spelled[name] = f"{size} B" if content is None else f"{size} B {digest(content)}"
    return spelled


def spelled_changes(
    folder: pathlib.Path, before: Mapping[str, Status], told: Told = _all_of_it
) -> dict[str, str]:
    """Spell the same as a snapshot of state does."""
    return {f"file {name}": said for name, said in changes(folder, before, told).items()}


@dataclass(slots=True)
class Scratch:
    """What is in a folder as it was when this was made; ``kept`` is None where it is too much."""

    folder: pathlib.Path
    kept: Mapping[str, bytes] | None = None
    _marks: dict[str, Mark] = field(default_factory=dict)
    _places: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = dict(itertools.islice(_entries(self.folder), _MOST_NAMES + 1))
        files = {n: each.st_size for n, each in found.items() if stat.S_ISREG(each.st_mode)}
        if sum(files.values()) <= MOST_BYTES and len(found) <= _MOST_NAMES:
            self.kept = {name: _read(self.folder / name) for name in files}
            for name, each in found.items():
                with contextlib.suppress(OSError):  # a link that is gone since it was listed
                    self._marks[name] = _mark(self.folder / name, each)
        self._places = dict(_places_in_files())

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where files are not put back."""
        if self.kept is not None:
            return ()
        most = format_bytes(MOST_BYTES)
        return (
            f"The factory left more than {most} or {_MOST_NAMES} files and folders in its working "
            "folder: runs are given each other's files there",
        )

    def put_back(self) -> None:
        """Make the files and the places in open files what they were.

        What a run has made untouchable stays as it is.
        """
        if self.kept is None:
            return
        for name, _ in list(_entries(self.folder)):
            with contextlib.suppress(OSError):
                if name not in self._marks:
                    _remove(self.folder / name)
        for name, mark in self._marks.items():  # a folder comes before what is in it
            with contextlib.suppress(OSError):
                path = self.folder / name
                if not os.path.lexists(path) or _mark(path, path.lstat()) != mark:
                    _make(path, mark, self.kept.get(name, b""))
                    self._marks[name] = _mark(path, path.lstat())
        for descriptor, place in self._places.items():
            with contextlib.suppress(OSError):
                os.lseek(descriptor, place, os.SEEK_SET)


def _entries(folder: pathlib.Path) -> Iterator[tuple[str, os.stat_result]]:
    """Give name and status of everything that is not the job's own, a folder before its own."""
    for root, folders, files in os.walk(folder):
        inner = os.path.relpath(root, folder)
        for each in sorted((*folders, *files)):
            name = each if inner == "." else f"{inner}/{each}"
            if _OURS.fullmatch(name):
                continue
            with contextlib.suppress(OSError):  # gone since it was listed
                yield name, os.lstat(os.path.join(root, each))


def _mark(path: pathlib.Path, found: os.stat_result) -> Mark:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFLNK:
        return kind, os.readlink(path)
    return kind, _status(found) if kind == stat.S_IFREG else ""


def _status(found: os.stat_result) -> Status:
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def _make(path: pathlib.Path, mark: Mark, content: bytes) -> None:
    """Put in a path what was there; into a file that is one still, which others may have open."""
    kind, target = mark
    if kind != stat.S_IFREG or path.is_symlink() or not path.is_file():
        _remove(path)
    if kind == stat.S_IFREG:
        path.write_bytes(content)
    elif kind == stat.S_IFDIR:
        path.mkdir()
    elif kind == stat.S_IFLNK:
        path.symlink_to(str(target))
    elif kind == stat.S_IFIFO:
        os.mkfifo(path)


def _read(path: pathlib.Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(MOST_BYTES)
    except OSError:  # it may not be read: its size says what there is to say
        return b""


def _places_in_files() -> Iterator[tuple[int, int]]:
    """Give the place in every file that this process has open, by its descriptor."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # of the listing itself, which is closed
                if int(name) >= _LOWEST_OF_THE_JOB and stat.S_ISREG(os.fstat(int(name)).st_mode):
                    yield int(name), os.lseek(int(name), 0, os.SEEK_CUR)
