"""A run in a process forked from its job: the copy of everything that a run may start from.

The job must be on one thread, and must not have touched a GPU. What the run finds comes back in
one frame; a process that ends without it leaves its exit status, if that can be known.
"""

import contextlib
import os
import select
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from haversack_server.verify import frames
from haversack_server.worker import system

_POLL_S = 0.05  # only where the system has no pidfd
_GIVEN_UP = 117  # exit code of a copy whose original is to go on


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that ended: its exit code, or minus the number of the signal that ended it.

    None is known where the workload ignores SIGCHLD, or has a handler that takes the status of any
    child.
    """

    status: int | None


def run_forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | Ended:
    """Do the work in a child; give what it found, or how it ended if it ended before."""
    ours, theirs = socket.socketpair()
    pid = fork_child()
    if pid == 0:
        ours.close()
        be_child(theirs, work)
    theirs.close()
    with ours:
        found, ended = _collect(pid, ours)
    return found if found is not None else ended


def fork_child() -> int:
    """Fork; 0 in the child, which the kernel ends with this process, and the child's number here.

    A run that goes on without its job would keep a GPU from the next one.
    """
    flush_output()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        system.holds(lambda: system.end_with_parent(parent))
    return pid


def be_child(channel: socket.socket, work: Callable[[], dict[str, Any]]) -> NoReturn:
    """Do the work, send what it found, and end; the stack of the parent is never returned to."""
    status = 1
    try:
        frames.send(channel, work())
        status = 0
    except BaseException:  # the stack ends here: nothing of the job may run twice
        print_fault()
    finally:
        flush_output()
        os._exit(status)


def goes_on_as_copy(is_wanted: Callable[[], bool]) -> bool:
    """Go on as a copy of this process, if ``is_wanted`` is true there; else as what it was.

    True in the copy, while this process waits and then ends as that does. False in this process,
    to which nothing has happened, where the copy gave up. The copy keeps what it was asked to do.
    """
    pid = fork_child()
    if pid == 0:
        if not is_wanted():
            give_up()
        return True
    _, status = os.waitpid(pid, 0)
    if not gave_up(os.waitstatus_to_exitcode(status)):
        system.end_as(status)
    return False


def give_up() -> NoReturn:
    """End this copy, and have what it is a copy of go on."""
    flush_output()
    os._exit(_GIVEN_UP)


def gave_up(status: int | None) -> bool:
    """Whether a copy ended by giving up."""
    return status == _GIVEN_UP


def print_fault() -> None:
    """Print the exception that is handled; with nowhere to print it, the exit status is left."""
    with contextlib.suppress(Exception):
        traceback.print_exc()


def flush_output() -> None:
    """Write what was printed, unless the workload closed or replaced what it was printed to.

    Neither may raise: an exception at the end of a copy would let it go on as the job.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def poll(pid: int) -> Ended | None:
    """Give how a child ended; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return Ended(None)
    return Ended(os.waitstatus_to_exitcode(status)) if ended else None


def _collect(pid: int, channel: socket.socket) -> tuple[dict[str, Any] | None, Ended]:
    # Not only until the channel closes: a process that the run left behind may hold it open.
    received = bytearray()
    ended: Ended | None = None
    is_open = True
    with _Exit(pid) as exit_of:
        while ended is None:
            exit_of.wait(channel if is_open else None)
            # The end first: what is drained after it is all there is.
            ended = poll(pid)
            is_open = is_open and drain(channel, received)
    return whole_frame(bytes(received)), ended


def drain(channel: socket.socket, received: bytearray) -> bool:
    """Take what has come; false where nothing more will."""
    channel.setblocking(False)
    try:
        while part := channel.recv(2**20):
            received += part
    except BlockingIOError:
        return True
    return False


def whole_frame(received: bytes) -> dict[str, Any] | None:
    """Read a frame; None where it did not come whole."""
    header, body = received[: frames.HEADER_BYTES], received[frames.HEADER_BYTES :]
    if len(header) < frames.HEADER_BYTES or len(body) != frames.body_size(header):
        return None
    return frames.unpack(body)


class _Exit:
    """Waits for the end of a child, or for something to read, whichever comes first."""

    def __init__(self, pid: int) -> None:
        self._pidfd = _pidfd_of(pid)

    def __enter__(self) -> "_Exit":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)

    def wait(self, channel: socket.socket | None) -> None:
        """Wait for either."""
        read: list[Any] = [channel] if channel else []
        if self._pidfd >= 0:
            select.select([*read, self._pidfd], [], [])
        else:
            select.select(read, [], [], _POLL_S)


def _pidfd_of(pid: int) -> int:
    """Open a descriptor of a process; -1 where Python or the kernel has none, as in gVisor."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
