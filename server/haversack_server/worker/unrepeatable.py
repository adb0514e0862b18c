"""What a step asks that no seed repeats: the clock, the system's entropy, the process's number.

Listens to calls of functions of C, however their names were imported: of those in the tables below,
and to what Python opens: the system's entropy is a file too.
What C asks itself (``numpy.datetime64("now")``, an extension's own) is not heard. Says what was
asked, not what became of it: most who ask the clock only write it down, and ``time.localtime`` may
have been given a time.
"""

import contextlib
import datetime
import os
import random
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import torch

from haversack_server.worker.ownership import ZOO

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_CALENDARS = ("localtime", "gmtime", "strftime", "ctime", "asctime")
_OF_SYSTEM = ("getpid", "getppid", "times", "urandom", "getrandom")


def _named(module: types.ModuleType, names: tuple[str, ...]) -> dict[Any, str]:
    """Give the functions of a module that this system has, with what they are called."""
    held = {name: getattr(module, name, None) for name in names}
    return {function: f"{module.__name__}.{name}" for name, function in held.items() if function}


_ASKED = {
    **_named(time, (*_CLOCKS, *(f"{name}_ns" for name in _CLOCKS), *_CALENDARS)),
    **_named(os, _OF_SYSTEM),
}
# Methods of classes are made anew for every call, and known by their names.
_OF_DATES = frozenset({"now", "utcnow", "today"})
_FUNCTION = types.BuiltinFunctionType
_ENTROPY = frozenset({"/dev/urandom", "/dev/random", "/dev/hwrng"})
# Asked first, of every call of a step: thousands, of which a few have such a name.
_HEARD = frozenset({"seed", *_OF_DATES, *(function.__name__ for function in _ASKED)})
# What asks for its own purposes: torch, records of loggers, and this product.
_OTHERS = ("torch.", "logging.", "haversack_server.", "haversack.")


class Unrepeatable:
    """While it is entered, notes who is asked; ``asked`` names them, in the order of asking."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._listens = False

    @property
    def asked(self) -> tuple[str, ...]:
        """Give the names of functions that were called."""
        return tuple(self._names)

    def __enter__(self) -> "Unrepeatable":
        self._listens = True
        sys.addaudithook(self._opened)  # nothing takes it away again; a run is a process
        threading.setprofile(self._heard)  # for threads that the step starts
        sys.setprofile(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        self._listens = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _opened(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and self._listens and isinstance(given[0], str | bytes):
            path = os.fsdecode(given[0])
            if path in _ENTROPY:
                self._names[path] = None

    def _heard(self, frame: types.FrameType, event: str, function: Any) -> None:
        if event != "c_call" or type(function) is not _FUNCTION:
            return
        if function.__name__ not in _HEARD:
            return
        name = _seeding(frame, function)
        if not name and not _is_others(frame):
            name = _name_of(function)
        if name:
            self._names[name] = None


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Hear nothing of this thread for a while: probes look at thousands of things in a region.

    Who else profiles is left alone: a profiler of C's cannot be put back.
    """
    listening = sys.getprofile()
    if not isinstance(getattr(listening, "__self__", None), Unrepeatable):
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(listening)


def _name_of(function: types.BuiltinFunctionType) -> str:
    # The type itself: ``__class__`` may be a property of the user's, which must not be run here.
    if type(function.__self__) is type:
        return _of_class(function.__self__, function.__name__)
    return _ASKED.get(function, "")


def _of_class(kind: type, name: str) -> str:
    if name not in _OF_DATES or not issubclass(kind, datetime.date):
        return ""
    return f"{'datetime' if issubclass(kind, datetime.datetime) else 'date'}.{name}"


def _seeding(frame: types.FrameType, function: types.BuiltinFunctionType) -> str:
    """Name what seeds a generator by the system's entropy, whoever's code calls it."""
    if function.__name__ != "seed":
        return ""
    kind = type(function.__self__)
    if issubclass(kind, torch.Generator):
        return "torch.Generator.seed"
    # Python's takes None for no seed: in its own frame, which ``random.Random()`` comes to as well.
    is_pythons = issubclass(kind, random.Random) and frame.f_code is random.Random.seed.__code__
    return "random.seed" if is_pythons and frame.f_locals["a"] is None else ""


def _is_others(frame: types.FrameType) -> bool:
    name = f"{frame.f_globals.get('__name__', '')}."
    return name.startswith(_OTHERS) and not name.startswith(ZOO)
