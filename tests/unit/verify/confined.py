"""Runs code in a confined process, which writes what it found into its scratch folder."""

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_PRELUDE = """
import errno, json, os, pathlib, signal, socket, subprocess, time
from haversack_server.worker import gpu_driver, landlock, limits, namespaces, system
from haversack_server.worker.confine import confine

def refuse(*_, **__):
    raise OSError(errno.ENOSYS, "not in this kernel")

def refusal(call):
    try:
        call()
    except OSError as refused:
        return errno.errorcode[refused.errno]
    return "done"

def run(found={}, gpu=False):
    given = limits.Limits(
        scratch=SCRATCH, deadline_ns=10**10, memory_bytes=2**32, processes=400, gpu=gpu
    )
    said = confine(given, keep=[], parent=None)
    pathlib.Path("found.json").write_text(json.dumps({"said": said, **found}))
    return said

def tell(found):
    said = json.loads(pathlib.Path("found.json").read_text())
    pathlib.Path("found.json").write_text(json.dumps({**said, **found}))
"""


@dataclass(frozen=True)
class Confined:
    """How a confined process ended, and what it wrote."""

    status: int
    found: dict[str, Any]

    @property
    def said(self) -> str:
        """Everything that it said of its confinement."""
        return "\n".join(self.found["said"])


def start(code: str, scratch: pathlib.Path) -> "subprocess.Popen[bytes]":
    """Start a process that runs ``code`` after a prelude; ``run()`` confines it."""
    path = os.pathsep.join(sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", f"SCRATCH = {str(scratch)!r}\n{_PRELUDE}\n{code}"],
        env={**os.environ, "PYTHONPATH": path, "ABOVE": str(os.getpid())},
    )


def confined(code: str, scratch: pathlib.Path) -> Confined:
    """Run ``code`` to its end."""
    status = start(code, scratch).wait(60)
    return Confined(status, json.loads((scratch / "found.json").read_text()))
