"""Namespaces of a job: its own ids, network, processes and shared memory.

A user namespace needs no privilege where the kernel allows it, and the others follow from it. What
helps is the shell, started without a copy of this process, which has torch in it: copying that
several times costs more than the namespaces. Nothing here limits files.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import socket
import struct
from typing import NoReturn

from haversack_server.worker import system

_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NETWORK = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS of an interface
_UP_AND_RUNNING = 0x1 | 0x40
_PID_MAX_OF_NAMESPACE = (6, 14)  # the first Linux in which it is not the whole machine's
_OUTSIDE = 0  # the number of a parent that is in none of the namespaces
_SHELL = "/bin/sh"
_WAIT = "read -r _"  # until the other end of its input closes
# All ids, where it may: root reads what others own, and would not where their ids have no names.
_MAP = """read -r _ || exit
cd "/proc/$1" && printf %s "$2" > uid_map && printf %s "$3" > gid_map && exit
echo deny > setgroups; echo "$4 $4 1" > uid_map; echo "$5 $5 1" > gid_map
"""


def enter() -> bool:
    """Go on in new namespaces, as a child of this process, which stays and ends as the child does.

    Raises OSError, in this process and before anything has changed, where they are refused. Root
    needs no user namespace for the others: false if it has none. The first process inside is not
    the child: signals without a handler do not reach it. With its end the kernel ends all others
    inside, those too that left their group.
    """
    ids = [_whole("uid"), _whole("gid"), str(os.geteuid()), str(os.getegid())]
    mapper, start = _shell(_MAP, str(os.getpid()), *ids)
    try:
        has_users = _unshare()
        if has_users:
            os.write(start, b"\n")
    finally:
        os.close(start)
        os.waitpid(mapper, 0)
    if has_users:  # it would be the machine's limit otherwise
        _forbid_more_users()
    try:
        first, hold = _shell(_WAIT)
    except OSError as wrong:  # there is no way back from here
        raise RuntimeError("no process could be started in the new namespaces") from wrong
    job = os.fork()
    if job:
        _end_as(job, first, hold)
    os.close(hold)
    # If that has ended by now, ``hold`` is closed on both sides, and the first process ends all.
    system.end_with_parent(_OUTSIDE)
    return has_users


def _unshare() -> bool:
    others = _NEW_NETWORK | _NEW_PID | _NEW_IPC
    try:
        system.unshare(_NEW_USER | others)
    except OSError:
        if os.geteuid() != 0:
            raise
        system.unshare(others)
        return False
    return True


def _whole(kind: str) -> str:
    lines = pathlib.Path(f"/proc/self/{kind}_map").read_text().splitlines()
    ranges = [line.split() for line in lines]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges)


def _shell(script: str, *arguments: str) -> tuple[int, int]:
    """Start a shell; give its pid, and the end of its input."""
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            _SHELL,
            ["sh", "-c", script, "sh", *arguments],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
        )
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return pid, writing


def _forbid_more_users() -> None:
    # A namespace inside would give every capability again, over less.
    with contextlib.suppress(OSError):  # /proc/sys may be read-only
        pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _end_as(job: int, first: int, hold: int) -> NoReturn:
    """Wait for the end of the job and of all that it left, and end in the job's way."""
    # All others are closed: the end of the job's channel is the job's own end.
    os.closerange(3, hold)
    os.closerange(hold + 1, 2**16)
    _, status = os.waitpid(job, 0)
    os.close(hold)
    os.waitpid(first, 0)
    system.end_as(status)


def raise_loopback() -> None:
    """Raise the one interface of a new network namespace: ranks of one job may speak over it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def limit_processes(most: int) -> bool:
    """Limit the processes and threads of the namespace, root's too; false where Linux cannot.

    ``most`` is above 300: the kernel gives numbers up to that one once only. For a process inside
    only: before Linux 6.14 the file is the whole machine's.
    """
    linux = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if os.getppid() != 0 or linux < _PID_MAX_OF_NAMESPACE:  # the parent is outside
        return False
    try:
        pathlib.Path("/proc/sys/kernel/pid_max").write_text(str(most))
    except OSError:
        return False
    return True
