"""What a job leaves in its folder: measured, read and removed as by one who does not trust it.

Where a file was there may be a link to one of ours, a pipe that nobody writes to, or a folder; and
folders may be deeper than a stack. Knows nothing of jobs.
"""

import contextlib
import itertools
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import IO

# A job's own files in its folder: what it printed, and the values of its first run. Hidden, and of
# no kind that training looks for there, or removes.
OUTPUT, VALUES = ".haversack.output", ".haversack.values"
_TAIL_BYTES = 4096
DEEPEST = 64  # folders within folders that are counted
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def open_regular(path: str | pathlib.Path) -> IO[bytes]:
    """Open a file that is no link, pipe, device or folder. Raises OSError, and never waits."""
    descriptor = os.open(path, _FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def tail(output: pathlib.Path) -> str:
    """Read the last 4 KiB of a file; empty where there is none, or another thing in its place."""
    try:
        opened = open_regular(output)
    except OSError:  # what is no file has no last words
        return ""
    with opened as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read(_TAIL_BYTES).decode(errors="replace")


def size_of(folder: str | pathlib.Path, most_entries: int) -> tuple[int, int]:
    """Give the bytes that a folder has on its disk, and the files and folders in it.

    Counting ends above ``most_entries``, and with folders within ``DEEPEST`` others, which count as
    too many. A file of several names counts once; what is gone meanwhile counts nothing, nor do
    files that a process holds open and that have no name any more.
    """
    count = _Count(most_entries)
    with contextlib.suppress(OSError):
        count.below(os.open(folder, _FOLDER), DEEPEST)
    return count.size_bytes, count.entries


class _Count:
    """Walks folders by descriptors: no link is followed, and as many are open as folders deep."""

    def __init__(self, most_entries: int) -> None:
        self.size_bytes = 0
        self.entries = 0
        self._most_entries = most_entries
        self._seen: set[int] = set()

    def below(self, folder: int, deepest: int) -> None:
        """Count what is in a folder, which is closed, and in all below."""
        try:
            with os.scandir(folder) as found:
                for entry in itertools.takewhile(self._has_room, found):
                    with contextlib.suppress(OSError):
                        self._add(entry, folder, deepest)
        finally:
            os.close(folder)

    def _has_room(self, _: object) -> bool:
        self.entries += 1
        return self.entries <= self._most_entries

    def _add(self, entry: os.DirEntry[str], folder: int, deepest: int) -> None:
        status = entry.stat(follow_symlinks=False)
        if status.st_ino not in self._seen:
            self._seen.add(status.st_ino)
            self.size_bytes += status.st_blocks * _BLOCK_BYTES
        if not stat.S_ISDIR(status.st_mode):
            return
        if deepest == 0:
            self.entries = self._most_entries + 1
            return
        self.below(os.open(entry.name, _FOLDER, dir_fd=folder), deepest - 1)


def remove_folder(folder: str | pathlib.Path) -> None:
    """Remove a folder and all that is in it, whatever its depth; what may not be removed stays."""
    with contextlib.suppress(OSError):
        root = os.open(folder, _FOLDER)
        try:
            _empty(root)
        finally:
            os.close(root)
        os.rmdir(folder)


def _empty(root: int) -> None:
    """Bring every folder up to the root and empty it there, so that no depth needs a stack."""
    token = secrets.token_hex(8)
    names = (f"{token}-{number}" for number in itertools.count())
    waiting = _emptied(root, root, names)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            folder = os.open(name, _FOLDER, dir_fd=root)
            try:
                waiting += _emptied(folder, root, names)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=root)


def _emptied(folder: int, root: int, names: Iterator[str]) -> list[str]:
    """Remove the files of a folder and move its folders to the root; gives their new names."""
    moved = []
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            name = next(names)
            os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=root)
            moved.append(name)
    return moved
