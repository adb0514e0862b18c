"""A process whose parent ended before it asked to end with it: real forks, in a process of its own.

``os.fork`` is made to be late: in the child it returns once the parent has gone, as it may on a
machine that is busy. What is asked is whether the child goes on.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/task").exists(), reason="parents are watched by Linux"
)
PATIENCE_S = 30
BEGINNINGS = ("by itself", "in confinement", "as a run", "as a copy", "as a rank")
_OUTSIDE = """
import json, os, sys, time
from haversack_server.worker import confine, fork, limits, ranks, system

fork_now = os.fork

def fork_late():
    parent, child = os.getpid(), fork_now()
    if child:
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.001)
    return child

def forked(work):
    if os.fork() == 0:
        work()
    else:
        os.wait()

def ask(go_on, parent):
    system.end_with_parent(parent)
    go_on()

def confine_and(go_on, parent):
    given = limits.Limits(
        scratch=sys.argv[1], deadline_ns=10**10, memory_bytes=None, sandbox=False
    )
    confine.confine(given, keep=[writing], parent=parent)
    go_on()

def begin(how, go_on):
    parent = os.getpid()
    {
        "by itself": lambda: forked(lambda: ask(go_on, parent)),
        "in confinement": lambda: forked(lambda: confine_and(go_on, parent)),
        "as a run": lambda: fork.run_forked(go_on),
        "as a copy": lambda: fork.goes_on_as_copy(lambda: True) and go_on(),
        "as a rank": lambda: ranks.run_ranks(1, lambda _: go_on(), patience_s=9),
    }[how]()

def said(how):
    global writing
    reading, writing = os.pipe()
    if fork_now() == 0:
        begin(how, lambda: {"written": os.write(writing, b"went on")})
        os._exit(0)
    os.close(writing)
    return os.read(reading, 100).decode()

beginnings = json.loads(sys.argv[2])
stays = {how: said(how) for how in beginnings}
os.fork = fork_late
goes = {how: said(how) for how in beginnings}
system.adopt_orphans()  # its number is not that of init, which takes them otherwise
adopted = {how: said(how) for how in beginnings}
print(json.dumps([stays, goes, adopted]))
"""
_INSIDE = """
import os, time
from haversack_server.worker import namespaces

fork_now, (reading, writing) = os.fork, os.pipe()

def fork_late():
    child = fork_now()
    if child:
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)  # until the parent, which alone has the other end, ends
    time.sleep(0.1)  # files are closed before children are told
    return child

os.fork = fork_late
try:
    namespaces.enter()
except OSError:
    print("refused")
else:
    time.sleep(20)
    print("went on")
"""


def printed(code: str, *arguments: str) -> str:
    """Run code until it and all that it left have ended; give what they printed."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


def test_a_child_whose_parent_has_gone_does_not_go_on(tmp_path: pathlib.Path) -> None:
    stays, goes, adopted = json.loads(printed(_OUTSIDE, str(tmp_path), json.dumps(BEGINNINGS)))
    assert stays == dict.fromkeys(BEGINNINGS, "went on")
    assert goes == dict.fromkeys(BEGINNINGS, "")
    assert adopted == dict.fromkeys(BEGINNINGS, "")


def test_a_job_ends_whose_parent_outside_its_namespaces_has_gone() -> None:
    said = printed(_INSIDE)
    if said == "refused\n":
        pytest.skip("this kernel refuses namespaces")
    assert said == ""
