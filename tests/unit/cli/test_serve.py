import sys
from collections.abc import Callable
from typing import Any

import pytest

from haversack import _embedded
from haversack.errors import MissingExtraError

Run = Callable[..., Any]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that this process would have become."""
    lines: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda path, line: lines.append([path, *line]))
    monkeypatch.setattr(_embedded, "server_app", lambda **_: None)
    return lines


def test_serve_becomes_the_service(haversack_run: Run, replaced: list[list[str]]) -> None:
    done = haversack_run(
        *("serve", "--listen", "0.0.0.0:50051", "--metrics-port", "9464", "--grace", "1.5"),
        *("--max-in-flight", "8", "--allow", "mypkg.", "--allow", "other.", "--cuda", "off"),
        *("--state-dir", "state", "--keep-reports", "9", "--keep-days", "0.5"),
        *("--executor", "ray", "--ray-address", "head:6379"),
    )
    assert done.code == 0
    python = sys.executable
    assert replaced == [
        [
            *(python, python, "-m", "haversack_server.service"),
            *("--listen", "0.0.0.0:50051", "--metrics-port", "9464"),
            *("--grace", "1.5", "--max-in-flight", "8", "--cuda", "off"),
            *("--state-dir", "state", "--keep-reports", "9", "--keep-days", "0.5"),
            *("--executor", "ray", "--ray-address", "head:6379"),
            *("--allow", "mypkg.", "--allow", "other."),
        ]
    ]


def test_what_is_not_given_is_for_the_service_to_choose(
    haversack_run: Run, replaced: list[list[str]]
) -> None:
    haversack_run("serve")
    assert replaced[0][2:] == ["-m", "haversack_server.service"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "localhost:65536"], ("listen", "65536", "65535", "--listen")),
        (["--listen", "localhost:-1"], ("listen", "-1")),
        (["--listen", "localhost"], ("listen", "HOST:PORT")),
        (["--listen", "localhost:http"], ("listen", "'http'")),
        (["--metrics-port", "70000"], ("metrics_port", "70000", "65535", "--metrics-port")),
        (["--metrics-port", "-1"], ("metrics_port", "-1")),
        (["--metrics-port", "nan"], ("metrics_port", "'nan'")),
        (["--cuda", "on"], ("cuda", "'on' will not do; give auto or off")),
        (["--executor", "slurm"], ("executor", "'slurm' will not do; give local or ray")),
        (["--ray-address", "head"], ("ray_address", "HOST:PORT")),
        (["--state-dir", ""], ("state_dir", "empty", "--state-dir")),
        (["--weights-dir", ""], ("weights_dir", "an empty path is no folder", "--weights-dir")),
        (["--weights-dir", "/none"], ("weights_dir", "/none is no folder", "--weights-dir")),
    ],
)
def test_a_port_out_of_range_is_refused_here(
    haversack_run: Run, replaced: list[list[str]], arguments: list[str], words: tuple[str, ...]
) -> None:
    done = haversack_run("serve", *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err
    assert replaced == []


def test_a_light_install_says_which_extra_is_missing(
    haversack_run: Run, replaced: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: str) -> None:
        raise MissingExtraError("a server needs numba: pip install 'haversack[server]'")

    monkeypatch.setattr(_embedded, "server_app", missing)
    done = haversack_run("serve")
    assert done.code == 1
    assert done.err == "haversack: a server needs numba: pip install 'haversack[server]'\n"
    assert replaced == []
