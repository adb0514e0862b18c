"""The ranks of one stage of a sharded job: a process forked for each, watched together.

All are copies of the job. A rank that dies ends the stage; so does one that does not follow the
others: none waits for it longer than a patience. Knows nothing of collectives.
"""

import contextlib
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from haversack_server.worker.fork import Ended, be_child, drain, fork_child, poll, whole_frame

_POLL_S = 0.2
_USUAL_DEADLINE_S = 300.0
_LONGEST_WAIT_S = 60.0


class RankLostError(Exception):
    """A rank died, or did not end when the others had; says which."""

    def __init__(self, message: str, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


@dataclass(slots=True)
class _Rank:
    number: int
    pid: int
    channel: socket.socket
    received: bytearray = field(default_factory=bytearray)
    ended: Ended | None = None

    def poll(self) -> bool:
        """Take what has come; true once the rank has ended."""
        if self.ended is None:
            # Before the channel is drained for the last time: what comes then is all there is.
            self.ended = poll(self.pid)
            drain(self.channel, self.received)
        return self.ended is not None

    def end(self) -> None:
        if not self.poll():
            # Where the workload has its children waited for, it may be gone already.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        self.channel.close()


def patience_s(deadline_ns: int | None) -> float:
    """Give how long ranks of a job wait for each other: a part of its deadline, in seconds."""
    deadline_s = deadline_ns / 1e9 if deadline_ns is not None else _USUAL_DEADLINE_S
    return min(_LONGEST_WAIT_S, deadline_s / 4)


def run_ranks(
    count: int, work: Callable[[int], dict[str, Any]], *, patience_s: float
) -> dict[int, dict[str, Any]]:
    """Do the work of every rank; give what each found, by its number.

    A rank that ended, well or by an exception, closes its connections, so that those that wait for
    it end too: one that has not within ``patience_s`` hangs. Raises RankLostError.
    """
    ranks = [_started(number, work) for number in range(count)]
    try:
        return _collected(ranks, patience_s)
    finally:
        for rank in ranks:
            rank.end()


def _collected(ranks: list[_Rank], patience_s: float) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    wait = _Wait()
    for rank in _ended(ranks, wait):
        frame = whole_frame(bytes(rank.received))
        if frame is None:
            status = rank.ended.status if rank.ended else None
            raise RankLostError(f"{_named(rank, ranks)} {_how(status)}", status)
        found[rank.number] = frame
        wait.at_most(patience_s)
    hung = [rank for rank in ranks if rank.number not in found]
    if hung:
        late = f"did not end within {patience_s:g} s after another had"
        raise RankLostError(f"{_named(hung[0], ranks)} {late}")
    return found


@dataclass(slots=True)
class _Wait:
    """A time to wait that only gets shorter; without end at first."""

    until: float = math.inf

    def at_most(self, seconds: float) -> None:
        self.until = min(self.until, time.monotonic() + seconds)

    def is_over(self) -> bool:
        return time.monotonic() > self.until


def _started(number: int, work: Callable[[int], dict[str, Any]]) -> _Rank:
    ours, theirs = socket.socketpair()
    pid = fork_child()
    if pid == 0:
        ours.close()
        be_child(theirs, lambda: work(number))
    theirs.close()
    return _Rank(number, pid, ours)


def _ended(ranks: list[_Rank], wait: _Wait) -> Iterator[_Rank]:
    """Give each rank when it has ended, until all have or the time is over."""
    running = list(ranks)
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.channel, selectors.EVENT_READ)
        while running:
            if wait.is_over():
                return
            for key, _ in selector.select(_POLL_S):
                # Readable for good once its rank has gone; its end is found below.
                if not drain(*_of(ranks, key.fileobj)):
                    selector.unregister(key.fileobj)
            for rank in [each for each in running if each.poll()]:
                running.remove(rank)
                yield rank


def _of(ranks: list[_Rank], channel: Any) -> tuple[socket.socket, bytearray]:
    rank = next(each for each in ranks if each.channel is channel)
    return rank.channel, rank.received


def _named(rank: _Rank, ranks: list[_Rank]) -> str:
    return f"Rank {rank.number} of {len(ranks)}"


def _how(status: int | None) -> str:
    if status is None:
        return "ended, and the workload took its exit status away"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"
