"""What a step does outside of memory: text it prints, files it writes, sockets and processes.

An audit hook sees the calls of Python, none of C extensions of their own; what lies in the scratch
folder afterwards is seen whoever wrote it. Files that are only read are no effect, nor is what
Python compiles. Text on standard error is left out: warnings go there, some of them about
checkpointing itself; records of loggers are counted.
"""

import logging
import os
import pathlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

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
_TEMPORARY = {
    "tempfile.mkstemp": "a temporary file",
    "tempfile.mkdtemp": "a temporary folder",
}
_WRITES = os.O_WRONLY | os.O_RDWR


class Effects:
    """Counts effects while it is open; used as a context, once in a process.

    ``folder`` is the scratch folder, whose files are compared; None where there is none.
    """

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        self._folder = folder
        self._files: dict[str, scratch.Status] = {}
        self._environment = dict(os.environ)
        self._counts: Counter[str] = Counter()
        self._temporary: dict[str, str] = {}
        self._characters = 0
        self._is_open = False
        self._stdout: Any = None
        self._write: Callable[[str], int] | None = None

    def __enter__(self) -> "Effects":
        tempfile.gettempdir()  # which is found by writing there, the first time
        if self._folder is not None:
            self._files = scratch.statuses(self._folder)
        sys.addaudithook(self._heard)
        self._stdout = sys.stdout
        if self._stdout is not None:  # the workload may have taken it away
            self._write, self._stdout.write = self._stdout.write, self._printed
        self._count_records()
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False  # a hook stays for the life of its process
        if self._write is not None:
            self._stdout.write = self._write

    def values(self) -> dict[str, str]:
        """Spell every effect, as a snapshot of state does."""
        files = scratch.changes(self._folder, self._files) if self._folder is not None else {}
        return {
            **{name: f"{count} times" for name, count in self._counts.items()},
            **{f"file {name}": said for name, said in files.items()},
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
                self._counts[f"file opened for writing: {name}"] += 1

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
