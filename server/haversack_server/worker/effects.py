"""What a step does outside of memory: text it prints, files it writes, sockets and processes.

An audit hook sees the calls of Python, none of C extensions of their own; what lies in the scratch
folder afterwards is seen whoever wrote it. Files that are only read are no effect, nor is what
Python compiles. Text on standard error is left out: warnings go there, some of them about
checkpointing itself; records of loggers are counted.
"""

import logging
import os
import pathlib
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

from haversack_server.worker import scratch
from haversack_server.worker.switches import environment_since, switches

# What is said of an event of the interpreter, and which of its arguments says of what.
_EVENTS: Mapping[str, tuple[str, int]] = {
    "socket.connect": ("socket connected to", 1),
    "socket.bind": ("socket bound to", 1),
    "socket.sendto": ("socket sent to", 1),
    "socket.sendmsg": ("socket sent to", 1),
    "subprocess.Popen": ("process started:", 0),
    "os.system": ("process started:", 0),
    "os.posix_spawn": ("process started:", 0),
    "os.kill": ("signal sent to process", 0),
    "os.remove": ("file removed:", 0),
    "os.rename": ("file renamed:", 0),
    "os.truncate": ("file truncated:", 0),
    "os.link": ("link made to", 0),
    "os.symlink": ("link made to", 0),
    "os.mkdir": ("folder made:", 0),
    "os.rmdir": ("folder removed:", 0),
    "sqlite3.connect": ("database opened:", 0),
}
OPENED = "file opened for writing: "
_TEMPORARY = {
    "tempfile.mkstemp": "a temporary file",
    "tempfile.mkdtemp": "a temporary folder",
}
_SAVED_BY = "_open_zipfile_writer_file"  # private; by which ``torch.save`` writes without ``open``
_WRITES = os.O_WRONLY | os.O_RDWR


class Effects:
    """Counts effects while it is open; used as a context, once in a process.

    ``folder`` is the scratch folder, whose files are compared unless it ``is_shared`` with others
    that write there meanwhile; None where there is none.
    """

    def __init__(self, folder: pathlib.Path | None = None, *, is_shared: bool = False) -> None:
        self._folder = folder
        self._compared = None if is_shared else folder
        self._files: dict[str, scratch.Status] = {}
        self._environment = dict(os.environ)
        self._counts: Counter[str] = Counter()
        self._temporary: dict[str, str] = {}
        self._characters = 0
        self._is_open = False
        self._stdout: Any = None
        self._write: Callable[[str], int] | None = None
        self._noted: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> "Effects":
        tempfile.gettempdir()  # which is found by writing there, the first time
        if self._compared is not None:
            self._files = scratch.statuses(self._compared)
        sys.addaudithook(self._heard)
        self._stdout = sys.stdout
        if self._stdout is not None:  # the workload may have taken it away
            self._write, self._stdout.write = self._stdout.write, self._printed
        self._count_records()
        self._note_calls()
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False  # a hook stays for the life of its process
        if self._write is not None:
            self._stdout.write = self._write
        for owner, name, real in reversed(self._noted):
            setattr(owner, name, real)

    def values(self) -> dict[str, str]:
        """Spell every effect, as a snapshot of state does."""
        compared = self._compared
        return {
            **{name: f"{count} times" for name, count in self._counts.items()},
            **(scratch.spelled_changes(compared, self._files) if compared is not None else {}),
            **environment_since(self._environment),
            **switches(),
            "printed text": f"{self._characters} characters",
        }

    def _count_records(self) -> None:
        kind: Any = logging.Logger
        handle = kind.handle

        def counted(logger: logging.Logger, record: logging.LogRecord) -> None:
            # Torch's own are about how it works, and may be about checkpointing.
            if self._is_open and logger.name.partition(".")[0] != "torch":
                self._counts[f"records logged by {logger.name}"] += 1
            handle(logger, record)

        kind.handle = counted  # for the life of the process, as the hook

    def _note_calls(self) -> None:
        """Note what writes without telling the interpreter: torch's files, descriptors, sockets."""
        self._note(torch.serialization, _SAVED_BY, self._saved)
        self._note(os, "write", lambda to, *_: self._count(f"bytes written to descriptor {to}"))
        for name in ("send", "sendall"):
            self._note(socket.socket, name, lambda *_: self._count("socket sent to its peer"))

    def _note(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        """Call ``note`` with what a function is called with, until the end; not for one missing."""
        real = getattr(owner, name, None)
        if real is None:
            return

        def noted(*args: Any, **kwargs: Any) -> Any:
            note(*args)
            return real(*args, **kwargs)

        setattr(owner, name, noted)
        self._noted.append((owner, name, real))

    def _count(self, said: str) -> None:
        if self._is_open:
            self._counts[said] += 1

    def _saved(self, path: Any) -> None:
        self._heard("open", (path, None, os.O_WRONLY))

    def _printed(self, text: str) -> int:
        assert self._write is not None
        self._characters += len(text)
        return self._write(text)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_open:
            return
        if event == "open":
            self._opened(*args)
        elif event in _EVENTS:
            said, place = _EVENTS[event]
            self._counts[f"{said} {self._spelled(args[place])}"] += 1
        elif event in _TEMPORARY:
            self._temporary[args[0]] = _TEMPORARY[event]

    def _opened(self, path: Any, _: Any, flags: int) -> None:
        if isinstance(path, str | bytes | os.PathLike) and flags & _WRITES:
            name = self._spelled(path)
            if not name.endswith(".pyc") and "__pycache__" not in name:
                self._counts[f"{OPENED}{name}"] += 1

    def _spelled(self, what: Any) -> str:
        """Spell a path inside the scratch folder from there, one of a random name by its kind."""
        if not isinstance(what, str | bytes | os.PathLike):
            return str(what)
        name = os.fsdecode(what)
        for path, kind in self._temporary.items():
            if name == path or name.startswith(f"{path}/"):
                return kind
        folder = f"{self._folder}/"
        return name.removeprefix(folder) if self._folder is not None else name
