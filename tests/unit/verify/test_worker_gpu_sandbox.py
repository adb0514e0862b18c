"""What holds a job on a GPU: Landlock, but only where the driver was seen to work inside it.

No GPU takes part: files stand for its device files, and functions for the use of the driver.
"""

import os
import pathlib
import subprocess
import sys
import time

import pytest
from tests.unit.verify.confined import confined

from haversack_server.local_place import limits_of
from haversack_server.places import Start
from haversack_server.worker import gpu_driver

pytestmark = [
    pytest.mark.skipif(
        not pathlib.Path("/proc/self/task").exists(), reason="sandboxes are Linux's"
    ),
    # Python 3.12 warns where a process with threads is forked: other tests leave some.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
RUN = """
gpu_driver.DEVICES = pathlib.Path(DEVICES)
gpu_driver.use_gpu = use
run(gpu=True)
tell({
    "device": refusal(lambda: open(f"{DEVICES}/nvidia0", "r+")),
    "outside": refusal(lambda: open(f"{DEVICES}/other", "r+")),
    "program": refusal(lambda: subprocess.run(["true"])),
    "cache": os.environ.get("CUDA_CACHE_PATH"),
})
"""


@pytest.fixture
def devices(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "devices"
    folder.mkdir()
    for name in ("nvidia0", "nvidiactl", "other"):
        (folder / name).touch()
    (tmp_path / "scratch").mkdir()
    return folder


def code(devices: pathlib.Path, use: str) -> str:
    return f"DEVICES = {str(devices)!r}\n{use}\n{RUN}"


def test_a_driver_that_works_inside_is_held_by_landlock(devices: pathlib.Path) -> None:
    use = 'def use(): open(f"{DEVICES}/nvidia0", "r+").close()'
    held = confined(code(devices, use), devices.parent / "scratch")
    if "Landlock, version" not in held.said:
        pytest.skip("this kernel has no Landlock")
    assert held.found["device"] == "done"
    assert (held.found["outside"], held.found["program"]) == ("EACCES", "EACCES")
    assert held.found["cache"] == str(devices.parent / "scratch" / gpu_driver.CACHE)
    assert "No namespaces: they were not tried with a GPU's driver" in held.said
    assert held.said.count("Landlock, version") == 1  # what the try-out said is not said again


def test_a_driver_that_wants_more_is_left_alone_and_that_is_said(devices: pathlib.Path) -> None:
    use = """
def use():
    raise OSError("the driver says CUDA_ERROR_OPERATING_SYSTEM")
"""
    held = confined(code(devices, use), devices.parent / "scratch")
    words = "tried inside it, and OSError: the driver says CUDA_ERROR_OPERATING_SYSTEM"
    assert words in held.said
    assert (held.found["outside"], held.found["program"]) == ("done", "done")
    assert "No new privileges" in held.said
    assert "writing outside the scratch folder" in held.said.splitlines()[-1]


def test_without_a_driver_the_reason_is_its_library() -> None:
    # In a process of its own: where there is a GPU, other tests may have used it in this one.
    code = "print(gpu_driver.refusal_inside(lambda: None))"
    asked = [sys.executable, "-c", f"from haversack_server.worker import gpu_driver; {code}"]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    refusal = subprocess.run(asked, env=path, capture_output=True, text=True, check=True).stdout
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        assert refusal == "\n"
    else:
        assert "libcuda.so.1" in refusal


def test_ranks_on_gpus_are_left_open_since_nccl_was_tried_in_no_sandbox(
    tmp_path: pathlib.Path,
) -> None:
    def asked(device: str, ranks: int) -> tuple[bool, bool, bool]:
        start = Start(job_id="a", device=device, deadline_ns=1, ranks=ranks)
        limits = limits_of(start, tmp_path)
        return limits["sandbox"], limits["gpu"], limits["memory_bytes"] is not None

    assert asked("cpu", 4) == (True, False, True)
    assert asked("cuda:0", 1) == (True, True, False)
    assert asked("cuda:0", 2) == (False, True, False)


def test_a_copy_that_dies_or_never_answers_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_driver.refusal_inside(lambda: None, lambda: os._exit(9)) == (
        "its process ended with 9"
    )
    assert gpu_driver.refusal_inside(lambda: None, lambda: None) == ""
    with monkeypatch.context() as patch:
        patch.setattr(gpu_driver, "_PATIENCE_S", 1)
        asleep = gpu_driver.refusal_inside(lambda: None, lambda: time.sleep(60))
    assert asleep == "it did not answer within 1 s"
    told = gpu_driver.refusal_inside(lambda: exec("raise ValueError('no way in')"))
    assert told == "ValueError: no way in"
