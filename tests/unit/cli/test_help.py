import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from haversack.cli.entry import haversack_command
from haversack.cli.exits import MEANINGS, Exit
from haversack.cli.option_types import FieldOption

ROOT = Path(__file__).parents[3]
COMMANDS = haversack_command.commands
OPTIONS = [
    (name, parameter)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, FieldOption)
]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, haversack_run: Callable[..., Any]
) -> None:
    done = haversack_run(name, "--help")
    assert done.code == 0
    assert f"haversack {name} " in done.out.split("Example", 1)[1]
    assert COMMANDS[name].short_help


@pytest.mark.parametrize(
    ("command", "option"), OPTIONS, ids=[f"{name} {each.name}" for name, each in OPTIONS]
)
def test_every_option_has_a_sentence(command: str, option: FieldOption) -> None:
    assert option.help
    assert option.help[0].isupper()
    assert option.help.endswith(".")
    # A value that may be left out says what is taken instead, or what it is needed for.
    if not option.is_flag and option.section not in ("Model", "Workload"):
        remarks = ("Default:", "Needed", "Without", "may be repeated")
        assert option.show_default or any(remark in option.help for remark in remarks)


def test_the_epilog_lists_every_exit_code(haversack_run: Callable[..., Any]) -> None:
    text = haversack_run("--help").out
    for code in Exit:
        assert f"  {code.value:<5}{MEANINGS[code]}" in text


def test_help_fits_80_columns(haversack_run: Callable[..., Any]) -> None:
    for name in COMMANDS:
        assert max(map(len, haversack_run(name, "--help").out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["diff", "explain-oom"])
def test_help_ends_with_help(name: str, haversack_run: Callable[..., Any]) -> None:
    """An argument makes no section of its own: the text above the options tells what it is."""
    lines = haversack_run(name, "--help").out.rstrip().splitlines()
    assert lines[-2] == "Help:"
    assert lines.count("Help:") == 1


def test_the_page_of_the_command_line_has_every_command_option_and_exit_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for name, command in COMMANDS.items():
        assert f"haversack {name}" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert f"`{parameter.opts[0]}`" in page, f"{name} {parameter.opts[0]}"
    for code in Exit:
        assert f"| {code.value} |" in page


@pytest.mark.parametrize("statement", ["import haversack.cli", "import haversack.requests"])
def test_importing_the_command_line_loads_nothing_heavy(statement: str) -> None:
    heavy = ["numpy", "numba", "torch", "grpc", "google.protobuf", "rich", "haversack_server"]
    code = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "client")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
