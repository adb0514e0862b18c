"""`haversack devices`, and the GPUs of a report."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from haversack.verify import VerifyEnvironment, VerifyEvent, VerifyReport, VerifyVerdict
from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice

Run = Callable[..., Any]
WHOLE = VerifyDevice(
    device="cuda:0", name="H200", uuid="GPU-1", memory_bytes=2**30, compute_mode="DEFAULT"
)
PART = replace(WHOLE, device="cuda:1", uuid="MIG-2", parent_uuid="GPU-2", compute_mode="PROHIBITED")
USED = replace(PART, notes=("process 7 is on it",))


def test_gpus_are_listed_with_who_is_on_them(client: Any, haversack_run: Run) -> None:
    client.devices = ListVerifyDevicesResponse(devices=(WHOLE, USED), notes=("GPU 3 is lost",))
    done = haversack_run("devices", "--timeout", "3")
    assert (done.code, client.keywords) == (0, {"timeout": 3.0})
    assert done.out.splitlines() == [
        "cuda:0  H200, 1.00 GiB, GPU-1",
        "cuda:1  H200, 1.00 GiB, MIG-2, of GPU-2, compute mode PROHIBITED",
        "    process 7 is on it",
        "GPU 3 is lost",
    ]
    (first, _) = haversack_run("devices", "--json").json["devices"]
    assert (first["uuid"], first["memory_bytes"]) == ("GPU-1", str(2**30))


def test_a_machine_without_gpus_says_so(client: Any, haversack_run: Run) -> None:
    del client
    assert haversack_run("devices").out == "no GPU: jobs run on the CPU\n"


def test_a_report_says_who_was_on_its_gpus_and_at_length_which_they_are(
    client: Any, haversack_run: Run
) -> None:
    environment = VerifyEnvironment(device="cuda:1", device_name="H200", gpus=(USED,))
    report = VerifyReport(verdict=VerifyVerdict.EQUIVALENT, environment=environment)
    client.events = [VerifyEvent(report=report)]
    out = haversack_run("verify", "--workload", "mlp").out
    assert "cuda:1: process 7 is on it" in out
    assert "MIG-2" not in out
    at_length = haversack_run("verify", "--workload", "mlp", "-v").out
    assert "cuda:1: H200, 1.00 GiB, MIG-2, of GPU-2" in at_length
