"""Factories and models that harm their own process. None is run outside a job."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

import torch
from torch import nn

from haversack.torch import Workload
from haversack_server.leftovers import OUTPUT
from haversack_server.verify import frames

from .cases import WIDTH, mlp

not_callable = 3
borrowed = os.system  # callable, and nobody meant to allow it


def returns_nothing() -> None: ...


def raises() -> NoReturn:
    raise ValueError("no weights here")


def leaves() -> NoReturn:
    sys.exit("leaving")


def exits(status: int = 7) -> NoReturn:
    os._exit(status)


def killed() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def crashes() -> Any:
    return ctypes.string_at(0)


def endless() -> NoReturn:
    while True:
        pass


def sleeps(seconds: float = 600.0) -> Workload:
    time.sleep(seconds)
    return mlp()


def fills_its_folder(mebibytes: int) -> NoReturn:
    for number in range(mebibytes):
        pathlib.Path(f"filling-{number}").write_bytes(bytes(2**20))
    time.sleep(600)
    raise AssertionError


def takes_memory(gibibytes: int = 64) -> Any:
    return torch.ones(gibibytes * 2**28)


def takes_memory_of_python(gibibytes: int = 64) -> Any:
    return bytearray(gibibytes * 2**30)


def prints(lines: int = 3000) -> Workload:
    for _ in range(lines):
        print("x" * 70)
        sys.stderr.write("y" * 70 + "\n")
    os.write(1, b"\x00\x00\x00\x01{")
    assert sys.stdin.read() == ""
    print("the last word")
    return mlp()


def closes_its_output() -> Workload:
    sys.stdout.close()
    sys.stderr.close()
    return mlp()


def says_half_a_letter() -> NoReturn:
    raise ValueError("no \ud800 weights")


def writes_to_every_descriptor() -> NoReturn:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)
    raise AssertionError


def speaks_for_its_job(message: dict[str, Any]) -> Workload:
    """Send a frame in place of the job's own."""
    frame = frames.pack(message)
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, frame)
        except OSError:
            continue
    return mlp()


def takes_ended_children(ignores: bool, harm: str = "") -> Workload:
    """Have nobody else hear how a child of this process ended; and then harm it."""

    def take(*_: object) -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return

    signal.signal(signal.SIGCHLD, signal.SIG_IGN if ignores else take)
    return in_forward(harm) if harm else mlp()


class Untouchable(nn.Module):
    """Raises wherever it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} for you")


def cannot_be_looked_at() -> Workload:
    return Workload(Untouchable())


def leaves_processes() -> Workload:
    """Fork one child in the job's group, and one that leaves it."""
    for leave in (False, True):
        if os.fork() == 0:
            if leave:
                os.setsid()
            time.sleep(600)
            os._exit(0)
    return mlp()


def leaves_processes_and_exits() -> NoReturn:
    leaves_processes()
    os._exit(3)


def leaves_instead_of_its_output(kind: str) -> NoReturn:
    """Put something where the server looks for the last words of a job, and end."""
    os.remove(OUTPUT)
    if kind == "link":
        os.symlink("/proc/self/cmdline", OUTPUT)  # of whoever follows it
    elif kind == "pipe":
        os.mkfifo(OUTPUT)
    else:
        os.mkdir(OUTPUT)
    os._exit(3)


def digs(depth: int = 1500) -> NoReturn:
    """Make folders deeper than a stack of Python's."""
    for _ in range(depth):
        os.mkdir("hole")
        os.chdir("hole")
    os._exit(3)


def forks_without_end() -> NoReturn:
    while True:
        os.fork()


def writes_outside() -> NoReturn:
    pathlib.Path(__file__).with_name("written").write_text("here")
    raise AssertionError


def starts_a_program() -> NoReturn:
    subprocess.run(["/bin/true"], check=True)
    raise AssertionError


def speaks_to_the_network() -> NoReturn:
    socket.create_connection(("192.0.2.1", 80), 5)  # TEST-NET-1, of RFC 5737
    raise AssertionError


def tells_its_surroundings() -> NoReturn:
    names = sorted(name for name in os.environ if name.startswith("HAVERSACK_"))
    open("here", "w").close()
    gpus = os.environ["CUDA_VISIBLE_DEVICES"]
    raise ValueError(f"{names} {gpus!r} {sorted(os.listdir('.'))}")


def exits_as_a_rank() -> None:
    if torch.distributed.is_initialized():
        os._exit(7)


class Harmful(nn.Module):
    """Does one harmful thing in its forward, which is a process of its own."""

    def __init__(self, harm: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH)])
        self.harm = harm

    def forward(self, x: torch.Tensor) -> Any:
        globals()[self.harm]()
        return self.layers[0](x)


def in_forward(harm: str) -> Workload:
    return Workload(Harmful(harm), (torch.ones(2, WIDTH),))
