"""Where torch or numpy is not installed, a Verify job or a trace says what to install."""

import importlib.util
import socket
import sys
from importlib.machinery import ModuleSpec

import pytest

from haversack.cli import exits
from haversack.errors import MissingExtraError
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest
from haversack_server.estimate.trace import TraceFound, TraceOrder
from haversack_server.verify import frames, records
from haversack_server.verify.admissible import check_admissible
from haversack_server.worker import estimate_trace


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_a_job_that_cannot_run_for_want_of_a_package_says_which_extra_has_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str) -> ModuleSpec | None:
        return None if name == package else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(MissingExtraError, match=rf"{package}.*haversack\[server,torch\]") as caught:
        check_admissible(VerifyRequest(workload=WorkloadReference(name="mlp")), ())
    assert exits.of_error(caught.value) is exits.Exit.FAILED


def test_a_trace_without_torch_says_which_extras_have_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "haversack_server.worker.fully_shard", None)
    ours, its = socket.socketpair()
    with ours, its:
        frames.send(
            ours,
            records.to_json(
                TraceOrder(config_json="{}", attention="eager", microbatch=1, seq=1, shards=1)
            ),
        )
        estimate_trace.serve(its)
        answer = frames.receive(ours)
    assert answer is not None
    failure = records.from_json(TraceFound, answer).failure
    assert failure.endswith("pip install 'haversack[server,torch,zoo]'")
