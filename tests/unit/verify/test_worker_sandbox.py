"""What holds a job where the kernel has namespaces and Landlock, and what is said where it has not.

Each test runs a process of its own. On a kernel without either, the tests that need it are skipped.
"""

import os
import pathlib
import signal
import time

import pytest
from tests.unit.verify.confined import confined, start

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/task").exists(), reason="sandboxes are Linux's"
)
NEITHER = "system.unshare = system.syscall = refuse"
NO_NAMESPACES = "system.unshare = refuse"
NO_LANDLOCK = "system.syscall = refuse"
PATIENCE_S = 30


@pytest.fixture(scope="module")
def has(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What this kernel has, in the words of a confined process."""
    return confined("run()", tmp_path_factory.mktemp("has")).said


def needs(has: str, *words: str) -> None:
    for word in words:
        if word not in has:
            pytest.skip(f"this kernel does not say {word!r}")


def test_files_programs_sockets_and_processes_outside_are_out_of_reach(
    has: str, tmp_path: pathlib.Path
) -> None:
    needs(has, "User, network, process", "Landlock, version")
    (tmp_path / "scratch").mkdir()
    code = f"""
run()
above = int(os.environ["ABOVE"])
tell({{
    "outside": refusal(lambda: open({str(tmp_path / "outside")!r}, "w")),
    "removed": refusal(lambda: os.rmdir({str(tmp_path)!r})),
    "scratch": refusal(lambda: open("inside", "w")),
    "nothing": refusal(lambda: open("/dev/null", "w")),
    "program": refusal(lambda: subprocess.run(["true"])),
    "network": refusal(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
    "signal": refusal(lambda: os.kill(above, signal.SIGCONT)),
    "secrets": refusal(lambda: open(f"/proc/{{above}}/environ")),
    "namespace": refusal(lambda: system.unshare(0x10000000)),
    "user": [os.getuid(), os.getgid()],
}})
"""
    found = confined(code, tmp_path / "scratch").found
    assert found.pop("user") == [os.getuid(), os.getgid()]
    assert "reading files" in found.pop("said")[-1]
    assert found == {
        "outside": "EACCES",
        "removed": "EACCES",
        "scratch": "done",
        "nothing": "done",
        "program": "EACCES",
        "network": "ENETUNREACH",
        "signal": "ESRCH",
        "secrets": "EACCES",
        "namespace": "ENOSPC",
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["scratch"]


def test_ranks_of_one_job_may_speak_over_a_loopback_of_their_own(
    has: str, tmp_path: pathlib.Path
) -> None:
    needs(has, "User, network, process")
    code = """
run()
with socket.create_server(("127.0.0.1", 0)) as server:
    tell({"loopback": refusal(lambda: socket.create_connection(server.getsockname(), 5))})
"""
    assert confined(code, tmp_path).found["loopback"] == "done"


def test_a_fork_bomb_runs_into_a_wall(has: str, tmp_path: pathlib.Path) -> None:
    needs(has, "processes and threads")
    code = """
run()
born = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        born += 1
except BlockingIOError:
    tell({"born": born})
"""
    # That it ends at all: those that sleep are gone with it.
    assert 50 < confined(code, tmp_path).found["born"] <= 401


@pytest.mark.parametrize(
    ("without", "end", "status"),
    [
        ("", "os._exit(7)", 7),
        ("", "os.kill(os.getpid(), 9)", -9),
        ("", "os.abort()", -signal.SIGABRT),
        (NO_LANDLOCK, "os._exit(7)", 7),
    ],
)
def test_a_process_ends_as_the_one_inside_does(
    tmp_path: pathlib.Path, without: str, end: str, status: int
) -> None:
    assert confined(f"{without}\nrun()\n{end}", tmp_path).status == status


def test_what_a_kernel_lacks_is_said_and_the_job_runs(tmp_path: pathlib.Path) -> None:
    code = f"{NEITHER}\nrun()\ntell({{'program': refusal(lambda: subprocess.run(['true']))}})"
    found = confined(code, tmp_path)
    assert "No namespaces of its own: not in this kernel" in found.said
    assert "No Landlock: not in this kernel" in found.said
    last = found.found["said"][-1]
    for open_way in ("reading files", "the network", "writing outside", "programs", "other proc"):
        assert open_way in last
    assert found.found["program"] == "done"


@pytest.mark.skipif(os.geteuid() != 0, reason="others need a user namespace for the rest")
def test_root_has_namespaces_where_user_namespaces_are_off(
    has: str, tmp_path: pathlib.Path
) -> None:
    needs(has, "User, network, process")
    limit = pathlib.Path("/proc/sys/user/max_user_namespaces")
    before = limit.read_text()
    code = """
unshare = system.unshare
system.unshare = lambda flags: refuse() if flags & 0x10000000 else unshare(flags)
run()
tell({
    "network": refusal(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
    "signal": refusal(lambda: os.kill(int(os.environ["ABOVE"]), signal.SIGCONT)),
})
"""
    found = confined(code, tmp_path)
    assert "\nNetwork, process and IPC namespaces of its own" in found.said
    assert found.found["network"] == "ENETUNREACH"
    assert found.found["signal"] == "ESRCH"
    assert limit.read_text() == before  # it is the machine's


def test_landlock_alone_refuses_tcp_where_it_knows_of_it(has: str, tmp_path: pathlib.Path) -> None:
    needs(has, "Landlock: no signals")  # a version that knows of TCP too
    code = f"""
{NO_NAMESPACES}
run()
tell({{"network": refusal(lambda: socket.create_connection(("127.0.0.1", 9), 1))}})
"""
    found = confined(code, tmp_path)
    assert found.found["network"] == "EACCES"
    assert found.found["said"][-1].startswith("Not contained: reading files, ")
    assert "the network but for TCP" in found.found["said"][-1]


@pytest.mark.slow
def test_ranks_that_landlock_keeps_apart_are_a_typed_failure(
    has: str, tmp_path: pathlib.Path
) -> None:
    needs(has, "Landlock: no signals")  # a version that knows of TCP too
    code = f"""
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest, VerifyReport, VerifyWorld
from haversack.parallelism import Sharding
from haversack_server.worker import load, sharded_job
request = VerifyRequest(
    workload=WorkloadReference(name="mlp"), world=VerifyWorld(size=2, sharding=Sharding.FSDP2)
)
{NO_NAMESPACES}
run()
job = sharded_job.ShardedJob(
    request=request,
    world=request.world,
    load=lambda seed: load.load(request.workload, allow=(), path=()),
    folder=pathlib.Path(SCRATCH),
    tell=lambda progress: None,
)
failure = job.report(VerifyReport(), ()).failure
tell({{"reason": failure.reason.name, "message": failure.message}})
"""
    found = confined(code, tmp_path).found
    assert found["reason"] == "RANK_LOST"
    assert found["message"].startswith("ranks cannot reach each other over gloo: ")
    assert found["message"].endswith("where its kernel lets it have a network namespace")
    assert "Permission denied" in found["message"]


def test_a_sandbox_is_left_out_where_it_is_not_asked_for(tmp_path: pathlib.Path) -> None:
    code = """
given = limits.Limits(scratch=SCRATCH, deadline_ns=10**10, memory_bytes=None, sandbox=False)
pathlib.Path(SCRATCH, "found.json").write_text(json.dumps({"said": confine(given, keep=[],
    parent=None)}))
"""
    said = confined(code, tmp_path).said
    assert "No namespaces and no Landlock" in said
    assert "No new privileges" in said


def test_who_kills_the_outer_process_kills_what_left_its_group_too(
    has: str, tmp_path: pathlib.Path
) -> None:
    needs(has, "User, network, process")
    code = """
run()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            pathlib.Path("alive").write_text(str(time.monotonic()))
            time.sleep(0.005)
time.sleep(600)
"""
    outer = start(code, tmp_path)
    alive = tmp_path / "alive"
    until = time.monotonic() + PATIENCE_S
    while not alive.exists() and time.monotonic() < until:
        time.sleep(0.005)
    outer.kill()
    assert outer.wait(PATIENCE_S) == -signal.SIGKILL
    while _is_being_written(alive) and time.monotonic() < until:
        continue
    assert not _is_being_written(alive)


def _is_being_written(file: pathlib.Path) -> bool:
    before = file.read_text()
    time.sleep(0.1)
    return file.read_text() != before
