"""Confines a job's process: a group of its own, limits, a sandbox, nothing of the server.

Says in words what held and what did not, since kernels and containers differ; a report lists it.
"""

import os
import pathlib
import resource
import sys
import tempfile
from collections.abc import Iterable

from haversack_server.leftovers import OUTPUT
from haversack_server.worker import sandbox, system
from haversack_server.worker.limits import Limits, limit_resources


def confine(limits: Limits, *, keep: Iterable[int], parent: int | None) -> tuple[str, ...]:
    """Confine this process and whatever it starts; say how, in words.

    ``keep`` are the descriptors that stay open beside the standard ones. Where ``parent`` is given
    the process ends with it. Where the kernel has namespaces, what returns is a child inside them.
    """
    if os.getpid() != os.getsid(0):
        os.setsid()
    _close_others({0, 1, 2, *keep})
    _redirect(pathlib.Path(limits.scratch) / OUTPUT)
    os.chdir(limits.scratch)
    os.environ["TMPDIR"] = limits.scratch
    tempfile.tempdir = limits.scratch  # else it is found by writing there, as ranks look around
    if parent is not None:
        system.holds(lambda: system.end_with_parent(parent))
    said = ["A process group of its own, with a scratch folder as its working folder"]
    said += limit_resources(limits)
    return (*said, *sandbox.enter(limits))


def become_subreaper() -> bool:
    """Take over the orphans of jobs, so that none outlives the worker; false where unsupported."""
    return system.holds(system.adopt_orphans)


def _close_others(keep: set[int]) -> None:
    edge = 0
    for descriptor in sorted(keep):
        if edge < descriptor:  # CPython 3.11 takes the empty range from 0 to 0 for all there is
            os.closerange(edge, descriptor)
        edge = descriptor + 1
    os.closerange(edge, max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**16))


def _redirect(output: pathlib.Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    os.close(nothing)
