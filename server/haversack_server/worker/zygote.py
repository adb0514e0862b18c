"""The zygote: torch loaded and warm on one thread, forking one confined process for each CPU job.

It never sees a GPU (CUDA_VISIBLE_DEVICES is empty) and never speaks gRPC. It ends when the server's
end of its socket closes, and takes every job and every orphan of a job with it.
"""

import contextlib
import gc
import importlib
import io
import os
import pathlib
import selectors
import signal
import socket
import time
from typing import Any, NoReturn

import torch
from torch.utils.checkpoint import checkpoint

from haversack_server.verify import frames, records
from haversack_server.worker.confine import become_subreaper, confine
from haversack_server.worker.fork import flush_output, print_fault
from haversack_server.worker.job import serve
from haversack_server.worker.limits import Limits
from haversack_server.worker.zoo.library import preload

_PATIENCE_S = 2.0


def _load_ranks() -> None:
    importlib.import_module("haversack_server.worker.sharded_job")


def _load_resume() -> None:
    importlib.import_module("haversack_server.worker.resume_job")


_PRELOADS = {"library": preload, "ranks": _load_ranks, "resume": _load_resume}


class Zygote:
    """Forks jobs on the server's word, and tells it when they end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._jobs: dict[int, int] = {}  # what the server calls them, by their pids
        self._wake, woken = socket.socketpair()
        for end in (self._wake, woken):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        self._woken = woken

    def serve(self) -> None:
        """Serve until the server goes away."""
        become_subreaper()
        warm()
        gc.collect()
        gc.freeze()  # what is loaded is shared with every job, and never collected in one
        frames.send(self._control, {"ready": os.getpid()})
        try:
            self._serve()
        finally:
            self._end()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake in ready:
                    self._reap()
                if self._control in ready and not self._take():
                    return

    def _take(self) -> bool:
        """Take one message of the server; false where it went away."""
        header, descriptors, _, _ = socket.recv_fds(self._control, frames.HEADER_BYTES, 1)
        if not header:
            return False
        body = self._control.recv(frames.body_size(header), socket.MSG_WAITALL)
        message = frames.unpack(body)
        for name in message["preloads"]:
            _PRELOADS[name]()
        self._fork(message["job"], records.from_json(Limits, message["limits"]), descriptors[0])
        return True

    def _fork(self, job: int, limits: Limits, descriptor: int) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as full:  # no room for one more process, which is no end of the others
            os.close(descriptor)
            frames.send(self._control, {"refused": job, "why": str(full)})
            return
        if pid == 0:
            _be_job(descriptor, limits, parent)
        os.close(descriptor)
        self._jobs[pid] = job
        frames.send(self._control, {"forked": job, "pid": pid})

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        while (ended := _ended_child()) is not None:
            pid, status = ended
            job = self._jobs.pop(pid, None)
            if job is not None:
                _kill_group(pid)
                frames.send(self._control, {"exited": job, "status": status})
        if not self._jobs:
            _kill_children()

    def _end(self) -> None:
        for pid in self._jobs:
            _kill_group(pid)
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            _kill_children()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _be_job(descriptor: int, limits: Limits, parent: int) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        isolation = confine(limits, keep=[descriptor], parent=parent)
        serve(socket.socket(fileno=descriptor), isolation)
        status = 0
    except BaseException:  # the stack ends here: the zygote's loop must not run twice
        print_fault()
    finally:
        flush_output()
        os._exit(status)


def _ended_child() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _kill_children() -> None:
    """Kill every child: with no job left, those are orphans that left their job's group."""
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    if not listed.exists():
        return  # only Linux hands orphans to the worker at all
    for pid in map(int, listed.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def warm() -> None:
    """Do once what every job does first: torch loads much of itself only then.

    On one thread: a pool of threads would not live on in forked jobs, and they would wait for it.
    """
    torch.set_num_threads(1)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    output: Any = checkpoint(module, torch.ones(1, 2), use_reentrant=False)
    output.sum().backward()
    torch.optim.SGD(module.parameters()).step()
    written = io.BytesIO()
    torch.save(module.state_dict(), written)
    written.seek(0)
    torch.load(written, weights_only=True)
