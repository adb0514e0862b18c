"""Where compiled kernels are kept on disk, how many came from there, and what compiling took.

Left to itself numba refuses to keep code, with an exception, where neither the package nor a home
can be written, and trusts whatever folder it finds. Here the first of these is taken that can be
written and that nobody else can write, as each folder above it:

    $NUMBA_CACHE_DIR/haversack_kernels
    __pycache__/compiled beside this file
    $XDG_CACHE_HOME/haversack/kernels, or ~/.cache/haversack/kernels
    haversack-UID in the folder for temporary files
    none: kernels are compiled at every start

In it is a folder for each version of this package and of numba: numba looks at the file of a
kernel alone to tell whether its code is still right, and a kernel holds the code of what it calls.

Only our own kernels are kept there: numba is told for the moment of each decoration, so code of
others in the process stays where it was. Loads numba when the first kernel is decorated.
"""

import functools
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import haversack_kernels

log = logging.getLogger(__name__)

_PACKAGE = "haversack_kernels"
_dispatchers: list[Any] = []


class Place(NamedTuple):
    """The folder that keeps compiled code, if any, and why earlier ones were passed over."""

    directory: Path | None
    passed_over: tuple[str, ...]


class Report(NamedTuple):
    """How the kernels of this process came to be: compiled, or loaded from the folder."""

    compiled: int
    loaded: int
    compile_seconds: float
    directory: str | None
    passed_over: tuple[str, ...]


class _Clock:
    """Adds up the time of numba's compile events that are ours; one within another counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._started_at = 0.0

    def notify(self, event: Any) -> None:
        """Take an event; numba holds its compiler lock meanwhile."""
        if not event.data["dispatcher"].py_func.__module__.startswith(_PACKAGE):
            return
        if event.is_start:
            if not self._depth:
                self._started_at = time.perf_counter()
            self._depth += 1
            _say_once()
            return
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._started_at


_clock = _Clock()


def njit(function: Callable[..., Any], signatures: Any = None, **options: Any) -> Any:
    """Decorate with ``numba.njit``, keeping the code in the folder of ``place`` if there is one."""
    import numba
    from numba.core import config as numba_config

    _listen()
    config: Any = numba_config
    if config.DISABLE_JIT:
        raise RuntimeError("NUMBA_DISABLE_JIT is set, but kernels only run compiled: unset it")
    directory, before = place().directory, config.CACHE_DIR
    config.CACHE_DIR = str(directory or "")  # a locator reads it here, once
    try:
        decorate = numba.njit(signatures, cache=directory is not None, **options)
        compiled: Any = decorate(function)
    finally:
        config.CACHE_DIR = before
    if directory is not None:
        _compile_what_is_broken(compiled._cache)
    _dispatchers.append(compiled)
    return compiled


def _compile_what_is_broken(kept: Any) -> None:
    """Let a kernel's code be compiled anew where its files cannot be read, as after a power cut.

    Numba raises whatever a pickle cut short raises, at every start.
    """
    load = kept.load_overload

    def load_or_forget(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception as broken:
            log.warning("compiles anew what cannot be read in %s: %r", kept.cache_path, broken)
            kept.flush()
            return None

    kept.load_overload = load_or_forget


@functools.cache
def place() -> Place:
    """Look for the folder, once in a process; makes it if it is not there."""
    import numba

    passed_over: list[str] = []
    versions = f"{haversack_kernels.__version__}-numba-{numba.__version__}"
    for folder in _candidates():
        reason = _reason_against(folder) or _reason_against(folder / versions)
        if reason is None:
            return Place(folder / versions, tuple(passed_over))
        passed_over.append(reason)
    return Place(None, tuple(passed_over))


def compile_seconds() -> float:
    """Tell how long this process has compiled kernels; 0 if all came from disk, or none is used."""
    return _clock.seconds


def report() -> Report:
    """Tell what was compiled and what was loaded, so far."""
    stats = [each.stats for each in _dispatchers if hasattr(each, "stats")]
    directory, passed_over = place()
    return Report(
        compiled=sum(sum(each.cache_misses.values()) for each in stats),
        loaded=sum(sum(each.cache_hits.values()) for each in stats),
        compile_seconds=compile_seconds(),
        directory=None if directory is None else str(directory),
        passed_over=passed_over,
    )


@functools.cache
def _say_once() -> None:
    kept = place().directory
    after = "at every start, for no folder can keep them" if kept is None else "once"
    log.info("compiles the kernels that this needs, %s; that takes up to a minute", after)


@functools.cache
def _listen() -> None:
    from numba.core import event

    event.Listener.register(_Clock)  # its base without importing numba above
    event.register("numba:compile", _clock)  # type: ignore[no-untyped-call]


def _candidates() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given).absolute() / _PACKAGE
    yield Path(__file__).parent / "__pycache__" / "compiled"
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # the specification says to ignore others
        home = os.path.expanduser("~/.cache")
    if os.path.isabs(home):  # without a home the ~ stays
        yield Path(home) / "haversack" / "kernels"
    user = os.geteuid() if hasattr(os, "geteuid") else os.environ.get("USERNAME", "user")
    yield Path(tempfile.gettempdir()) / f"haversack-{user}"


def _reason_against(folder: Path) -> str | None:
    try:
        folder = folder.resolve()
        _make(folder)
        reason = _distrust(folder)
        if reason is None:
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as wrong:
        return f"{folder}: {wrong.strerror or wrong}"
    return reason


def _make(folder: Path) -> None:
    """Make a folder and those above it for this user alone, whatever the umask."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def _distrust(folder: Path) -> str | None:
    """Say who else could put code into a folder, or swap it or a folder above it for another."""
    if os.name == "nt":  # no modes, and profiles are private
        return None
    for each in [folder, *folder.parents]:
        status = each.stat()
        own, mode = each == folder, stat.S_IMODE(status.st_mode)
        if status.st_uid not in ((os.geteuid(),) if own else (os.geteuid(), 0)):
            return f"{folder}: {each} belongs to user {status.st_uid}"
        if mode & (stat.S_IWGRP | stat.S_IWOTH) if own else _all_may_swap(mode):
            return f"{folder}: {each} can be written by others (mode {mode:o})"
    return None


def _all_may_swap(mode: int) -> bool:
    """Tell whether anybody may rename what lies in a folder; the sticky bit leaves it to owners."""
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
