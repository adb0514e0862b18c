"""Where compiled code is kept, and that nobody else could have put it there.

A file stands where a folder would have to be: unlike a mode, that stops root as well.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import haversack_kernels
from haversack_kernels import cache
from haversack_kernels.cache import Place

PACKAGE = Path(cache.__file__).parent
VERSIONS = f"{haversack_kernels.__version__}-numba-{version('numba')}"
KERNEL = """
from haversack_kernels import cache

def _twice(x):
    return 2 * x

twice = cache.njit(_twice)

def _thrice(x):
    return twice(x) + x

thrice = cache.njit(_thrice)
"""
SOLVE = """
import json
from haversack_kernels import cache, tiny
assert tiny.thrice(2) == 6
print(json.dumps(cache.report()._asdict()))
"""
BREAK = """
import importlib
import json
from haversack_kernels import cache, tiny

def anew():
    # As at another start: the module's kernels are made once more, and have nothing in memory.
    before = cache.report()
    assert importlib.reload(tiny).thrice(2) == 6
    after = cache.report()
    return after.compiled - before.compiled, after.loaded - before.loaded

anew()
found = {}
for kind in ("nbi", "nbc"):
    for content in (b"", b"junk", bytes([0x80])):
        files = list(cache.place().directory.rglob(f"tiny.*.{kind}"))
        assert len(files) == 2
        for each in files:
            each.write_bytes(content)
        found[f"{kind} of {content!r}"] = anew(), anew()
print(json.dumps(found))
"""
NOWHERE = "import tempfile; tempfile.tempdir = '/dev/null'"
LEFT_TO_NUMBA = f"""
{NOWHERE}
import numba
from haversack_kernels import tiny
numba.njit(cache=True)(tiny._twice)
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    """Start a process with kernels in a package that cannot be written, without a home."""
    package = tmp_path / "lib" / "haversack_kernels"
    package.mkdir(parents=True)
    for name in ("__init__.py", "cache.py"):
        shutil.copy(PACKAGE / name, package)
    (package / "tiny.py").write_text(KERNEL)
    (package / "__pycache__").touch()
    (tmp_path / "tmp").mkdir()
    plain = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent), "HOME": "/dev/null"}
    plain |= {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path / "tmp")}

    def run(program: str = SOLVE, **environment: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=plain | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return run


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Place]:
    """Look for the place anew, with nothing but a home in the environment."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "package" / "cache.py"))
    return cache.place.__wrapped__


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_without_a_home_the_second_start_loads_what_the_first_compiled(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    first, second = start(), start()
    assert (first["compiled"], first["loaded"]) == (2, 0)
    assert first["compile_seconds"] > 0
    assert (second["compiled"], second["loaded"]) == (0, 1)  # with the callee's code inside it
    assert second["compile_seconds"] == 0
    (kept,) = (tmp_path / "tmp").iterdir()
    assert first["directory"] == second["directory"] == str(kept / VERSIONS)
    assert kept.name == f"haversack-{os.geteuid()}"
    assert mode_of(kept) == 0o700
    assert [each.split(": ")[1] for each in first["passed_over"]] == ["Not a directory"] * 2


def test_with_nowhere_to_keep_it_code_is_compiled_every_time(start: Callable[..., Any]) -> None:
    for _ in range(2):
        done = start(NOWHERE + SOLVE)
        assert (done["compiled"], done["loaded"], done["directory"]) == (2, 0, None)
        assert len(done["passed_over"]) == 3


def test_numba_by_itself_fails_there(start: Callable[..., Any]) -> None:
    assert "no locator available" in start(LEFT_TO_NUMBA)


def test_the_folder_that_the_environment_names_comes_first(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    named = tmp_path / "named"
    first = start(NUMBA_CACHE_DIR=str(named))
    assert first["directory"] == str(named / "haversack_kernels" / VERSIONS)
    assert first["passed_over"] == []
    assert list(named.rglob("tiny.*.nbi"))
    assert start(NUMBA_CACHE_DIR=str(named))["compiled"] == 0


def test_a_named_folder_that_all_can_write_is_not_trusted(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    named = tmp_path / "named"
    start(NUMBA_CACHE_DIR=str(named))
    named.chmod(0o777)  # as an emptyDir of Kubernetes: what lies in it may be another's by now
    done = start(NUMBA_CACHE_DIR=str(named))
    assert (done["compiled"], done["loaded"]) == (2, 0)
    assert "can be written by others (mode 777)" in done["passed_over"][0]


def test_code_that_cannot_be_read_is_compiled_anew(start: Callable[..., Any]) -> None:
    found = start(BREAK)
    assert len(found) == 6
    for broken, (first, second) in found.items():
        assert (broken, first, second) == (broken, [2, 0], [0, 1])


def test_kernels_that_may_not_be_compiled_are_refused_by_name(start: Callable[..., Any]) -> None:
    assert "NUMBA_DISABLE_JIT is set, but kernels only run compiled" in start(NUMBA_DISABLE_JIT="1")


def test_others_code_in_the_process_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", "/somewhere/else")
    cache.njit(lambda x: x)
    assert vars(config)["CACHE_DIR"] == "/somewhere/else"


def test_a_kernel_with_signatures_takes_those_alone() -> None:
    halve = cache.njit(lambda x: x // 2, ["int64(int64)"])
    assert len(halve.signatures) == 1  # before any call
    assert halve(7) == 3
    with pytest.raises(TypeError, match="No matching definition"):
        halve("seven")


def test_the_order_is_package_home_temporary(
    places: Callable[[], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    assert places().directory == tmp_path / "package" / "__pycache__" / "compiled" / VERSIONS
    shutil.rmtree(tmp_path / "package")
    (tmp_path / "package").touch()
    assert places().directory == tmp_path / "home" / ".cache" / "haversack" / "kernels" / VERSIONS
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert places().directory == tmp_path / "xdg" / "haversack" / "kernels" / VERSIONS
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert places().directory == tmp_path / "home" / ".cache" / "haversack" / "kernels" / VERSIONS
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert places().directory == tmp_path / f"haversack-{os.geteuid()}" / VERSIONS


def test_other_versions_keep_their_code_elsewhere(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    first = start()
    package = tmp_path / "lib" / "haversack_kernels" / "__init__.py"
    package.write_text(package.read_text().replace(haversack_kernels.__version__, "9.8.7"))
    second = start()
    assert (second["compiled"], second["loaded"]) == (2, 0)
    assert Path(second["directory"]).name.startswith("9.8.7-numba-")
    assert Path(second["directory"]).parent == Path(first["directory"]).parent


def test_what_is_made_is_for_this_user_whatever_the_umask(places: Callable[[], Place]) -> None:
    before = os.umask(0)
    try:
        folder = places().directory
    finally:
        os.umask(before)
    assert folder is not None
    assert [mode_of(each) for each in [folder, *folder.parents][:4]] == [0o700] * 4


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o770])
def test_a_folder_that_others_can_write_is_not_trusted(
    places: Callable[[], Place], tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "package" / "__pycache__" / "compiled"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    found = places()
    assert found.directory != folder / VERSIONS
    assert found.passed_over == (f"{folder}: {folder} can be written by others (mode {mode:o})",)


@pytest.mark.parametrize(
    ("mode", "trusted"), [(0o1777, True), (0o755, True), (0o775, True), (0o777, False)]
)
def test_folders_above_count_where_their_entries_can_be_swapped(
    places: Callable[[], Place], tmp_path: Path, mode: int, trusted: bool
) -> None:
    above = tmp_path / "package"
    above.mkdir()
    above.chmod(mode)
    assert (places().directory == above / "__pycache__" / "compiled" / VERSIONS) is trusted


def test_a_folder_of_another_user_is_not_trusted(
    places: Callable[[], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package" / "__pycache__" / "compiled"
    folder.mkdir(parents=True)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert places().passed_over[0] == f"{folder}: {folder} belongs to user {owner}"


def test_a_link_to_a_folder_of_others_is_followed_before_it_is_judged(
    places: Callable[[], Place], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    (tmp_path / "package" / "__pycache__").mkdir(parents=True)
    (tmp_path / "package" / "__pycache__" / "compiled").symlink_to(theirs)
    assert str(theirs) in places().passed_over[0]


def test_only_our_compilations_are_timed_and_each_second_once() -> None:
    import numba

    before = cache.compile_seconds()
    numba.njit(lambda x: x + 1)(1)
    assert cache.compile_seconds() == before

    clock = cache._Clock()
    for is_start in (True, True, False, False):  # a kernel that calls one that is new too
        clock.notify(_Event(is_start))
        if is_start:
            assert clock.seconds == 0
    once = clock.seconds
    assert once > 0
    clock.notify(_Event(True))
    assert clock.seconds == once


class _Event:
    """A compile event of one of our kernels, as numba tells of it."""

    def __init__(self, is_start: bool) -> None:
        self.is_start = is_start
        self.data = {"dispatcher": self}
        self.py_func = cache.njit  # a function of our package
