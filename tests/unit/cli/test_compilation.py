"""The line that tells why a first plan takes long: once, and only if it is so."""

import io
import logging
import sys
from collections.abc import Callable

import pytest

from haversack.cli.calls import telling_of_compilation
from haversack_kernels import cache

LINE = (
    "haversack: compiles the kernels that this needs, once; that takes up to a minute "
    "(`haversack warmup` compiles all of them ahead)\n"
)


class Compiled:
    """Two compile events, as numba tells of them."""

    is_start = True
    py_func = cache.njit  # a function of our package

    def __init__(self) -> None:
        self.data = {"dispatcher": self}


Watch = Callable[[io.StringIO], io.StringIO]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Put something in the place of standard error, in a process that has compiled nothing yet."""

    def watched(stream: io.StringIO) -> io.StringIO:
        cache._say_once.cache_clear()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return watched


def compile_two() -> None:
    clock = cache._Clock()
    clock.notify(Compiled())
    clock.notify(Compiled())


def test_a_first_plan_says_once_that_it_compiles(watch: Watch) -> None:
    told = watch(io.StringIO())
    with telling_of_compilation(server=None, as_json=False):
        compile_two()
    assert told.getvalue() == LINE


def test_what_comes_from_disk_says_nothing(watch: Watch) -> None:
    told = watch(io.StringIO())
    with telling_of_compilation(server=None, as_json=False):
        pass
    assert told.getvalue() == ""


@pytest.mark.parametrize(("server", "as_json"), [("localhost:1", False), (None, True)])
def test_a_server_and_a_script_are_not_told(
    watch: Watch, server: str | None, as_json: bool
) -> None:
    told = watch(io.StringIO())
    with telling_of_compilation(server, as_json):
        compile_two()
    assert told.getvalue() == ""


def test_the_log_is_left_as_it_was(watch: Watch) -> None:
    watch(io.StringIO())
    kernels = logging.getLogger("haversack_kernels.cache")
    before = kernels.level, list(kernels.handlers)
    with telling_of_compilation(server=None, as_json=False):
        assert kernels.handlers
    assert (kernels.level, kernels.handlers) == before
