"""What a step asks that no seed repeats: the clock, the system's entropy, the process's number.

Listens to calls of functions of C, however their names were imported. Says what was asked, not what
became of it: most who ask the clock only write it down.
"""

import os
import sys
import threading
import time
import types
from typing import Any

from haversack_server.worker.ownership import ZOO

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_ASKED: dict[Any, str] = {
    **{getattr(time, name): f"time.{name}" for name in _CLOCKS},
    **{getattr(time, f"{name}_ns"): f"time.{name}_ns" for name in _CLOCKS},
    os.getpid: "os.getpid",
    os.times: "os.times",
    os.urandom: "os.urandom",
}
if hasattr(os, "getrandom"):
    _ASKED[os.getrandom] = "os.getrandom"
# Methods of classes are made anew for every call, and known by their names.
_METHODS = frozenset({"datetime.now", "datetime.utcnow", "date.today"})
# What asks for its own purposes: torch, records of loggers, and this product.
_OTHERS = ("torch.", "logging.", "haversack_server.", "haversack.")


class Unrepeatable:
    """While it is entered, notes who is asked; ``asked`` names them, in the order of asking."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    @property
    def asked(self) -> tuple[str, ...]:
        """Give the names of functions that were called."""
        return tuple(self._names)

    def __enter__(self) -> "Unrepeatable":
        threading.setprofile(self._heard)  # for threads that the step starts
        sys.setprofile(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _heard(self, frame: types.FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        name = _name_of(function)
        if name and not _is_others(frame):
            self._names[name] = None


def _name_of(function: Any) -> str:
    if type(function) is not types.BuiltinFunctionType:
        return ""
    if function.__self__.__class__ is type:
        return function.__qualname__ if function.__qualname__ in _METHODS else ""
    return _ASKED.get(function, "")


def _is_others(frame: types.FrameType) -> bool:
    name = f"{frame.f_globals.get('__name__', '')}."
    return name.startswith(_OTHERS) and not name.startswith(ZOO)
