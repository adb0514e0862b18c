"""What a step does outside of memory: text it prints, files it writes, sockets and processes.

An audit hook sees the calls of Python, none of C extensions of their own. Files that are only read
are no effect, nor is what Python compiles. Text on standard error is left out: warnings go there,
some of them about checkpointing itself.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

_EVENTS = {
    "socket.connect": "socket connected to",
    "socket.bind": "socket bound to",
    "subprocess.Popen": "process started:",
    "os.system": "process started:",
    "os.remove": "file removed:",
    "os.rename": "file renamed:",
    "os.mkdir": "folder made:",
}
_WRITES = os.O_WRONLY | os.O_RDWR


class Effects:
    """Counts effects while it is open; used as a context, once in a process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._characters = 0
        self._is_open = False
        self._stdout: Any = None
        self._write: Callable[[str], int] | None = None

    def __enter__(self) -> "Effects":
        sys.addaudithook(self._heard)
        self._stdout = sys.stdout
        self._write, self._stdout.write = self._stdout.write, self._printed
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False  # a hook stays for the life of its process
        self._stdout.write = self._write

    def values(self) -> dict[str, str]:
        """Spell every effect, as a snapshot of state does."""
        named = {name: f"{count} times" for name, count in self._counts.items()}
        return named | {"printed text": f"{self._characters} characters"}

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
            what = args[1] if event.startswith("socket.") else args[0]
            self._counts[f"{_EVENTS[event]} {what}"] += 1

    def _opened(self, path: Any, _: Any, flags: int) -> None:
        if isinstance(path, str | os.PathLike) and flags & _WRITES:
            name = os.fspath(path)
            if not name.endswith(".pyc") and "__pycache__" not in name:
                self._counts[f"file opened for writing: {name}"] += 1
