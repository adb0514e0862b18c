"""Landlock: the kernel refuses what a process and its children may not do with files and sockets.

Needs no privilege. Numbers and layouts are those of ``include/uapi/linux/landlock.h`` (Linux 6.12);
what an older kernel does not know is left out, and said.
"""

import ctypes
import os
from collections.abc import Iterable

from haversack_server.worker import system

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
# Remove, make (all kinds but devices) and, from version 2 and 3 on, link across folders, truncate.
_REMOVE_AND_MAKE = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_TCP = 1 << 0 | 1 << 1  # bind, connect
_ABSTRACT_SOCKETS_AND_SIGNALS = 1 << 0 | 1 << 1


class _Ruleset(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("files", "network", "scoped"))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Give the kernel's version of Landlock, 1 or more. Raises OSError where it has none."""
    return system.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)


def restrict(folder: str, devices: Iterable[str], *, tcp: bool) -> tuple[str, ...]:
    """Let this process write in ``folder`` and to ``devices`` only, and start no program.

    Without ``tcp`` it makes no TCP connection either. Reading stays as it is. Gives what is held,
    in words; raises OSError where the kernel has no Landlock, or privileges may still be gained.
    """
    known = version()
    writing = _WRITE_FILE | _REMOVE_AND_MAKE
    writing |= (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    devices_only = _IOCTL_DEVICE if known >= 5 else 0
    ruleset = _Ruleset(
        files=_EXECUTE | _MAKE_DEVICES | writing | devices_only,
        network=0 if tcp or known < 4 else _TCP,
        scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if known >= 6 else 0,
    )
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = system.syscall(_CREATE_RULESET, ruleset, size, 0)
    try:
        _allow(rules, folder, writing)
        for device in filter(os.path.exists, devices):
            _allow(rules, device, _WRITE_FILE | devices_only)
        system.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return _said(known, tcp)


def _allow(rules: int, path: str, access: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        system.syscall(_ADD_RULE, rules, _PATH_BENEATH, _Beneath(access, opened), 0)
    finally:
        os.close(opened)


def _said(known: int, tcp: bool) -> tuple[str, ...]:
    said = [f"Landlock, version {known}: writes in the scratch folder only, starts no program"]
    if known < 3:
        said.append("Landlock of this kernel does not see files being truncated")
    if not tcp and known >= 4:
        said.append("Landlock: no TCP")
    if known >= 6:
        said.append("Landlock: no signals and no abstract sockets to processes outside")
    return tuple(said)
