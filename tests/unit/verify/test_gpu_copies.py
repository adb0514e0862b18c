"""Runs on a GPU are copies of a process that left it alone; no GPU takes part.

PyTorch's own note that CUDA was used stands for its use. Everything happens in a copy of the test's
process, since what is tested goes on as a copy.
"""

import errno
import importlib
import json
import os
import pathlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="jobs are torch's")

from torch import nn  # noqa: E402

from haversack.run import WorkloadReference  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.verify import VerifyReport, VerifyRequest, VerifyVerdict  # noqa: E402
from haversack_server.leftovers import VALUES  # noqa: E402
from haversack_server.verify import frames, records  # noqa: E402
from haversack_server.verify.outcome import Outcome  # noqa: E402
from haversack_server.worker import fork, job, run, untouched  # noqa: E402
from haversack_server.worker.errors import BadWorkloadError  # noqa: E402
from haversack_server.worker.order import Order  # noqa: E402
from haversack_server.worker.untouched import Untouched  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        not pathlib.Path("/proc/self/task").exists(), reason="what a process holds is in /proc"
    ),
    # Python 3.12 warns where a process with threads is forked: other tests leave some.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
FORKS = "Cannot re-initialize CUDA in forked subprocess"


def in_a_copy(work: Any) -> dict[str, Any]:
    found = fork.run_forked(work)
    assert isinstance(found, dict), f"the copy ended with {found}"
    return found


def use_cuda() -> None:
    setattr(torch.cuda, "_initialized", True)  # noqa: B010


def test_a_copy_goes_on_where_it_is_wanted_and_the_original_where_not() -> None:
    def went(is_wanted: bool) -> dict[str, Any]:
        before = os.getpid()
        told = fork.goes_on_as_copy(lambda: is_wanted)
        return {"told": told, "is_another": os.getpid() != before}

    assert in_a_copy(lambda: went(True)) == {"told": True, "is_another": True}
    assert in_a_copy(lambda: went(False)) == {"told": False, "is_another": False}


def test_an_original_ends_as_its_copy_does() -> None:
    def ended(how: Any) -> dict[str, Any] | fork.Ended:
        return fork.run_forked(lambda: {"": fork.goes_on_as_copy(how)})

    assert ended(lambda: os._exit(9)) == fork.Ended(9)
    assert ended(lambda: os.kill(os.getpid(), 9)) == fork.Ended(-9)


def test_a_copy_is_waited_for_where_the_kernel_has_no_descriptors_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: int) -> int:
        raise OSError(errno.ENOSYS, "as in gVisor")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert in_a_copy(lambda: {"done": True}) == {"done": True}


def test_what_uses_a_gpu_or_starts_a_thread_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def holds(between: Any) -> bool:
        def work() -> dict[str, Any]:
            watch = Untouched()
            between()
            return {"holds": watch.holds()}

        return bool(in_a_copy(work)["holds"])

    def start_a_thread() -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    assert holds(lambda: None)
    assert not holds(use_cuda)
    assert not holds(start_a_thread)
    with monkeypatch.context() as patched:
        patched.setattr(untouched, "_FILE_OF_CUDA", os.devnull)
        assert not holds(lambda: os.open(os.devnull, os.O_RDONLY))
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
        assert not holds(lambda: None)


def test_ranks_on_gpus_are_not_begun_from_what_has_used_one() -> None:
    def refused(kind: str) -> dict[str, Any]:
        with untouched.kept_forkable(kind):
            use_cuda()
        return {}

    assert in_a_copy(lambda: refused("cpu")) == {}

    def told() -> dict[str, Any]:
        with pytest.raises(BadWorkloadError, match="build it on the CPU"):
            refused("cuda")
        return {"raised": True}

    assert in_a_copy(told) == {"raised": True}


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Have a job's GPU be the CPU, and its only workload write down each time it is built."""

    def made(workload: Workload, request: VerifyRequest) -> Any:
        if os.environ.get("SPOILT") and torch.cuda._initialized is False:
            raise RuntimeError(FORKS)
        return run.make_ready(workload, replace(request, device="cpu"))

    def performed(plan: run.RunPlan, request: VerifyRequest, ready: run.Ready) -> Outcome:
        return run.perform(plan, replace(request, device="cpu"), ready)

    monkeypatch.setattr(job, "make_ready", made)
    monkeypatch.setattr(job, "perform", performed)
    importlib.import_module("torch._dynamo")  # once for all, where the suite has not yet
    (tmp_path / "scratch").mkdir()
    return tmp_path


def reported(folder: pathlib.Path, build: Any) -> tuple[VerifyReport, list[str], int]:
    """Run a job; give its report, the stages that it told, and how often it built."""
    builds = folder / "builds"
    builds.touch()

    def loaded(*_: Any) -> Workload:
        with builds.open("a") as file:
            file.write(".")
        workload: Workload = build()
        return workload

    def work() -> dict[str, Any]:
        setattr(job, "loaded", loaded)  # noqa: B010 - only in this copy
        request = VerifyRequest(workload=WorkloadReference(name="any"), device="cuda:0")
        values = str(folder / "scratch" / VALUES)
        order = Order(job_id="j", request=request, values_file=values)
        return {"report": records.to_json(job._report(order, theirs))}

    ours, theirs = socket.socketpair()
    with ours, theirs:
        report = records.from_json(VerifyReport, in_a_copy(work)["report"])
        theirs.shutdown(socket.SHUT_WR)
        stages = [each["progress"]["stage"] for each in received(ours)]
    return report, stages, builds.stat().st_size


def received(channel: socket.socket) -> Iterator[dict[str, Any]]:
    while (message := frames.receive(channel)) is not None:
        yield json.loads(json.dumps(message))


def small() -> Workload:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x).tanh()
            return x

    return Workload(Model(), (torch.ones(2, 3, requires_grad=True),))


def test_a_workload_that_leaves_the_gpu_alone_is_built_once_for_all_runs(
    folder: pathlib.Path,
) -> None:
    report, stages, builds = reported(folder, small)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert (builds, stages[0]) == (1, "build")
    assert not any("anew" in each for each in report.assumptions)
    assert report.pinned[0].startswith("Every run is a copy of one process")


def test_one_that_uses_the_gpu_is_built_anew_in_every_run_and_that_is_said(
    folder: pathlib.Path,
) -> None:
    def build() -> Workload:
        use_cuda()
        return small()

    report, stages, builds = reported(folder, build)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert "build" not in stages
    assert builds == 1 + len(stages)  # the first of which was given up
    assert any("every run builds it anew" in each for each in report.assumptions)
    assert report.pinned[0] == "Every run calls the factory, with the same seed"


@pytest.mark.slow
def test_a_use_that_shows_only_in_the_first_run_is_made_good(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOILT", "1")

    def build() -> Workload:
        if (folder / "builds").read_text() != ".":
            use_cuda()  # in a run of its own, which may
        return small()

    report, stages, builds = reported(folder, build)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert stages[0] == "build"
    assert builds == len(stages)
    assert any("every run builds it anew" in each for each in report.assumptions)
