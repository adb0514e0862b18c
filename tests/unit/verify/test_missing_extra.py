"""Where torch or numpy is not installed, a Verify job is refused with what to install."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from haversack.cli import exits
from haversack.errors import MissingExtraError
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest
from haversack_server.verify.admissible import check_admissible


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
