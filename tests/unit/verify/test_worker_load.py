"""Names of entry points of any length, in sentences of a few lines."""

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack.run import WorkloadReference
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.load import load

LONG = "a" * 1_000_000


@pytest.mark.parametrize(
    "entry_point", [f"json.{LONG}:build", f"json:{LONG}", f"json:loads.{LONG}"]
)
def test_what_is_not_there_is_said_shortly(entry_point: str) -> None:
    with pytest.raises(BadWorkloadError) as refused:
        load(WorkloadReference(entry_point=entry_point), allow=["json"], path=[])
    assert len(str(refused.value)) < 1000
