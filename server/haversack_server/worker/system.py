"""Calls of Linux that Python 3.11 has no name for, through the C library.

Each raises OSError where the kernel refuses it or this is another system. Knows numbers and
layouts; what they are for is in ``namespaces``, ``landlock`` and ``confine``.
"""

import contextlib
import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522


def holds(call: Callable[[], None]) -> bool:
    """Make a call; false where the system refuses it."""
    try:
        call()
    except OSError:
        return False
    return True


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process once ``parent``, which started it, has ended.

    ``parent`` is its number, known from before this process began: one that has ended by now is
    nobody's parent any more, and the kernel tells of no end before it was asked. This process then
    ends here. 0 is a parent outside this process namespace, whose end nothing here can look up.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Not whether it is 1: a subreaper takes over orphans too, as the worker does.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def refuse_new_privileges() -> None:
    """Let no program that this process starts gain privileges, set-user-id ones among them."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def end_as(status: int) -> NoReturn:
    """End this process as one ended whose ``status`` was waited for: by its code, or its signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def unshare(flags: int) -> None:
    """Leave the namespaces that ``flags`` name for new ones."""
    _checked(_library().unshare(ctypes.c_int(flags)))


def syscall(number: int, *arguments: int | ctypes.Structure | None) -> int:
    """Make a call by its number; a structure travels by its address."""
    passed = [
        ctypes.byref(each) if isinstance(each, ctypes.Structure) else _word(each)
        for each in arguments
    ]
    return _checked(_library().syscall(ctypes.c_long(number), *passed))


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Half(ctypes.Structure):
    """Half of the three sets of capabilities: 32 of them."""

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def keep_capabilities(kept: int) -> None:
    """Give up every capability that is not among the bits of ``kept``, for good."""
    header = _Header(_CAPABILITY_VERSION_3, 0)
    halves = (_Half * 2)()
    _checked(_library().capget(ctypes.byref(header), halves))
    for place, half in enumerate(halves):
        half.permitted &= (kept >> (32 * place)) & 0xFFFFFFFF
        half.effective = half.permitted
        half.inheritable = 0
    _checked(_library().capset(ctypes.byref(header), halves))


def _prctl(option: int, value: int) -> None:
    _checked(_library().prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))))


def _library() -> ctypes.CDLL:
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "this system is not Linux")
    return ctypes.CDLL(None, use_errno=True)


def _word(value: int | None) -> ctypes.c_void_p | ctypes.c_long:
    return ctypes.c_void_p(None) if value is None else ctypes.c_long(value)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
