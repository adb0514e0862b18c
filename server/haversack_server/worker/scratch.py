"""Files of a job's scratch folder: what a run has changed in them, and how they were before it.

Runs share the folder, so what one leaves there the next would find. Files are put back as the
workload's factory left them, and so is the place in every file that it left open: those are shared
with forked runs.
"""

import contextlib
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from haversack.units import format_bytes
from haversack_server.leftovers import open_regular, remove_folder
from haversack_server.worker.rng import digest

MOST_BYTES = 2**26  # kept in memory; read after a step
_OURS = re.compile(r"output\.txt|values\.pt|[\w-]+\.ranks(\.\d+)?")  # what jobs keep there
_MOST_FILES = 10_000
_LOWEST_OF_THE_JOB = 3
Status = tuple[int, ...]


def statuses(folder: pathlib.Path) -> dict[str, Status]:
    """Give what shows whether a file was written, for every regular file; reads none."""
    return {name: _status(each) for name, each in _entries(folder) if stat.S_ISREG(each.st_mode)}


def changes(folder: pathlib.Path, before: Mapping[str, Status]) -> dict[str, str]:
    """Spell files that were written or removed: by size and content, by size beyond what is read.

    ``before`` are the statuses that they had.
    """
    now = statuses(folder)
    changed = sorted(n for n in now.keys() | before.keys() if now.get(n) != before.get(n))
    spelled, left = {}, MOST_BYTES
    for name in changed:
        if name not in now:
            spelled[name] = "removed"
            continue
        size, *_ = now[name]
        content = f" {digest(_read(folder / name))}" if size <= left else ""
        left -= size if content else 0
        spelled[name] = f"{size} B{content}"
    return spelled


@dataclass(slots=True)
class Scratch:
    """The files of a folder as they were when it was made; None where they are too many."""

    folder: pathlib.Path
    kept: Mapping[str, bytes] | None = None
    _statuses: dict[str, Status] = field(default_factory=dict)
    _folders: set[str] = field(default_factory=set)
    _places: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folders = {n for n, each in _entries(self.folder) if stat.S_ISDIR(each.st_mode)}
        self._statuses = statuses(self.folder)
        sizes = [size for size, *_ in self._statuses.values()]
        if sum(sizes) <= MOST_BYTES and len(sizes) < _MOST_FILES:
            self.kept = {name: _read(self.folder / name) for name in self._statuses}
        self._places = dict(_places_in_files())

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where files are not put back."""
        if self.kept is not None:
            return ()
        most = format_bytes(MOST_BYTES)
        return (
            f"The factory left more than {most} or {_MOST_FILES} files in its working folder: runs "
            "are given each other's files there",
        )

    def put_back(self) -> None:
        """Make the files and the places in open files what they were.

        What a run has made untouchable stays as it is.
        """
        if self.kept is None:
            return
        for name, _ in list(_entries(self.folder)):
            with contextlib.suppress(OSError):
                if name not in self.kept and name not in self._folders:
                    _remove(self.folder / name)
        now = statuses(self.folder)
        for name, content in self.kept.items():
            with contextlib.suppress(OSError):
                if now.get(name) != self._statuses[name]:
                    _write(self.folder / name, content)
                    self._statuses[name] = _status((self.folder / name).lstat())
        for descriptor, place in self._places.items():
            with contextlib.suppress(OSError):
                os.lseek(descriptor, place, os.SEEK_SET)


def _entries(folder: pathlib.Path) -> Iterator[tuple[str, os.stat_result]]:
    """Give name and status of everything that is not the job's own."""
    seen = 0
    for root, folders, files in os.walk(folder):
        inner = os.path.relpath(root, folder)
        for each in sorted((*folders, *files)):
            name = each if inner == "." else f"{inner}/{each}"
            seen += 1
            if _OURS.fullmatch(name) or seen > _MOST_FILES:
                continue
            with contextlib.suppress(OSError):  # gone since it was listed
                yield name, os.lstat(os.path.join(root, each))


def _status(found: os.stat_result) -> Status:
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink()


def _write(path: pathlib.Path, content: bytes) -> None:
    if path.is_symlink() or not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    path.write_bytes(content)


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
