"""A run in a process forked from its job: the copy of everything that a run may start from.

The job must be on one thread, and must not have touched a GPU. What the run finds comes back in
one frame; a process that ends without it leaves its exit status.
"""

import os
import select
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from haversack_server.verify import frames

_POLL_S = 0.05  # only where the system has no pidfd


def run_forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | int:
    """Do the work in a child; give what it found, or its exit status if it ended before."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _child(theirs, work)
    theirs.close()
    with ours:
        found, status = _collect(pid, ours)
    return found if found is not None else status


def _child(channel: socket.socket, work: Callable[[], dict[str, Any]]) -> None:
    status = 1
    try:
        frames.send(channel, work())
        status = 0
    except BaseException:  # the stack ends here: nothing of the job may run twice
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _collect(pid: int, channel: socket.socket) -> tuple[dict[str, Any] | None, int]:
    # Not only until the channel closes: a process that the run left behind may hold it open.
    received = bytearray()
    status: int | None = None
    is_open = True
    with _Exit(pid) as exit_of:
        while status is None:
            exit_of.wait(channel if is_open else None)
            # The status first: what is drained after it is all there is.
            status = exit_of.status()
            is_open = is_open and _drain(channel, received)
    return _frame(bytes(received)), status


def _drain(channel: socket.socket, received: bytearray) -> bool:
    """Take what has come; false where nothing more will."""
    channel.setblocking(False)
    try:
        while part := channel.recv(2**20):
            received += part
    except BlockingIOError:
        return True
    return False


def _frame(received: bytes) -> dict[str, Any] | None:
    header, body = received[: frames.HEADER_BYTES], received[frames.HEADER_BYTES :]
    if len(header) < frames.HEADER_BYTES or len(body) != frames.body_size(header):
        return None
    return frames.unpack(body)


class _Exit:
    """Waits for the end of a child, or for something to read, whichever comes first."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1

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

    def status(self) -> int | None:
        """Give the exit status if the child ended; minus the signal if one ended it."""
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
