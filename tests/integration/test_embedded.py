"""The server inside a caller's process: up without a word, gone without a trace."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import haversack
from haversack import MissingExtraError, VerifyVerdict, _embedded

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
ASK = "print(client.estimate(parameter_count=1000).steady_bytes)"
ANSWER = "16000\n"
BLOCK = f"import haversack\nwith haversack.connect() as client:\n    {ASK}\n"
OPEN = f"import haversack\nclient = haversack.connect()\n{ASK}\n"
AWAITED = """
import asyncio, haversack
async def main():
    async with haversack.connect_async() as client:
        print((await client.estimate(parameter_count=1000)).steady_bytes)
asyncio.run(main())
"""
# A blocking client inside a running loop, as in a notebook.
IN_A_LOOP = f"""
import asyncio, haversack
async def main():
    with haversack.connect() as client:
        {ASK}
asyncio.run(main())
"""
AGAIN = """
import haversack, threading
for _ in range(5):
    with haversack.connect() as client:
        last = client.estimate(parameter_count=1000).steady_bytes
print(last)
assert threading.active_count() == 1, threading.enumerate()
"""
VERIFIED = """
import haversack
client = haversack.connect()
assert client.verify(workload="mlp", timeout=60).failure is None
print(16000)
"""
FORKED = f"""
import os, sys, haversack
with haversack.connect() as client:
    {ASK}
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.exit(7)  # leaves the block, in a process where no thread of the server runs
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert client.estimate(parameter_count=1000).steady_bytes == 16000
"""

# What a child answers, by how the parent's server is at the fork.
IN_A_CHILD = """
import os, haversack
def in_a_child():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with haversack.connect() as other:
                answer = str(other.estimate(parameter_count=1000).steady_bytes)
        except haversack.HaversackError as refused:
            answer = str(refused)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        answer = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return answer
with haversack.connect() as client:
    client.estimate(parameter_count=1000)
    refusal = in_a_child()
assert f"was forked from process {os.getpid()} while a server ran" in refusal, refusal
assert "start a fresh process" in refusal, refusal
print(in_a_child())  # the client is closed: a fork is no hindrance
"""


def run(
    *arguments: str, program: str | None = None, tmp: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python with warnings as errors and a folder of its own for what is temporary."""
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        input=program,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp)} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def assert_answered(done: "subprocess.CompletedProcess[str]", tmp: Path) -> None:
    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr
    assert done.stderr == ""
    assert list(tmp.glob("haversack-*")) == []


@pytest.mark.parametrize(
    "program",
    [BLOCK, OPEN, AWAITED, IN_A_LOOP, AGAIN, VERIFIED],
    ids=["block", "never closed", "awaited", "in a loop", "again and again", "after a job"],
)
def test_a_script_gets_its_answer(program: str, tmp_path: Path) -> None:
    assert_answered(run("-c", program, tmp=tmp_path), tmp_path)


@pytest.mark.parametrize("program", [BLOCK, OPEN], ids=["block", "never closed"])
def test_standard_input_gets_its_answer(program: str, tmp_path: Path) -> None:
    assert_answered(run("-", program=program, tmp=tmp_path), tmp_path)


def test_a_child_that_leaves_the_block_takes_nothing_with_it(tmp_path: Path) -> None:
    # Not with warnings as errors: gRPC warns of forks on standard error.
    done = run("-W", "ignore", "-c", FORKED, tmp=tmp_path)
    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr
    assert list(tmp_path.glob("haversack-*")) == []


def test_a_child_is_refused_a_server_beside_its_parent_s(tmp_path: Path) -> None:
    done = run("-W", "ignore", "-c", IN_A_CHILD, tmp=tmp_path)
    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr


def test_a_folder_too_deep_for_a_socket_is_no_hindrance(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    assert_answered(run("-c", BLOCK, tmp=deep), deep)


def test_a_proxy_in_the_environment_is_no_hindrance(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)  # the loopback, which a proxy would divert
    deep.mkdir()
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    assert_answered(run("-c", BLOCK, tmp=deep, **proxies), deep)


def test_an_interrupt_inside_the_block_ends_it_at_once(tmp_path: Path) -> None:
    program = BLOCK.replace(ASK, f"{ASK}\n    import signal\n    signal.raise_signal(2)")
    done = run("-c", program, tmp=tmp_path)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert list(tmp_path.glob("haversack-*")) == []


def test_a_light_install_is_told_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [each for each in sys.modules if each.startswith("haversack_server.service")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        MissingExtraError, match=r"prometheus_client: pip install 'haversack\[server\]'"
    ):
        haversack.connect()


def test_a_missing_module_of_our_own_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "haversack_server.service.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"haversack_server\.service\.app"):
        _embedded.server_app()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a package that builds a workload."""
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg/__init__.py").touch()
    (tmp_path / "mypkg/models.py").write_text(
        "import torch\n"
        "from haversack.torch import Workload\n"
        "def build(layers=1):\n"
        "    blocks = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())]\n"
        "    model = torch.nn.Sequential(*(blocks * layers))\n"
        "    return Workload(model, args=(torch.ones(2, 8),))\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workload_of_the_current_folder_runs_where_it_is_allowed(package: Path) -> None:
    with haversack.connect(allow=["mypkg."]) as client:
        report = client.verify(
            workload="mypkg.models:build", args={"layers": 2}, regions=["0"], timeout=PATIENCE_S
        )
    assert report.failure is None
    assert report.verdict is VerifyVerdict.EQUIVALENT


def test_a_prefix_that_is_no_name_is_refused_and_nothing_is_left_running() -> None:
    threads = threading.active_count()
    with pytest.raises(haversack.InvalidRequestError) as caught:
        haversack.connect(allow=["os.system()"])
    assert caught.value.field == "allow"
    assert threading.active_count() == threads


async def test_two_loops_in_one_process_do_not_disturb_each_other() -> None:
    async with haversack.connect_async() as client:
        answers = await asyncio.gather(
            *(client.estimate(parameter_count=count) for count in range(1, 201))
        )
    assert [each.steady_bytes for each in answers] == [16 * count for count in range(1, 201)]


def test_threads_may_share_a_client() -> None:
    answers: dict[int, Any] = {}

    def ask(count: int) -> None:
        answers[count] = client.estimate(parameter_count=count).steady_bytes

    with haversack.connect() as client:
        threads = [threading.Thread(target=ask, args=(count,)) for count in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {count: 16 * count for count in range(1, 9)}
