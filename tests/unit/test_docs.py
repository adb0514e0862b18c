"""The documents: links lead somewhere, commands and examples do what is printed beside them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.consoles import console_blocks, follow
from tests.unit.deploy.dashboard import ALERTS, QUERIES, metric_names

from haversack.cli import entry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FOLDERS = ["client", "deploy", "docs", "examples", "kernels", "proto", "scripts", "server", "tests"]
DOCUMENTS = [*ROOT.glob("*.md")]
DOCUMENTS += [file for each in FOLDERS for file in sorted((ROOT / each).rglob("*.md"))]
LINKS = [
    (file, target)
    for file in DOCUMENTS
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text())
    if not target.startswith(("http://", "https://"))
]
DECISIONS = sorted((ROOT / "docs/decisions").glob("0*.md"))
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CONSOLES = console_blocks(ROOT / "README.md")
EXAMPLES = re.findall(r"`haversack (.*?)`", (ROOT / "examples/README.md").read_text())
VERDICTS = {0, 3, 4}  # an answer, as against a failure or invalid input
RUN_TO_THE_END_S = 120  # a bound for a machine that is busy, not an expectation


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run this Python in the repository's root, on the packages of the work tree."""
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TO_THE_END_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("file", "target"), LINKS, ids=[f"{file.relative_to(ROOT)}:{target}" for file, target in LINKS]
)
def test_a_link_leads_somewhere(file: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    aim = (file.parent / path).resolve() if path else file
    assert aim.exists()
    assert aim.is_relative_to(ROOT)
    if anchor:
        headings = re.findall(r"^#+ (.*)$", aim.read_text(), re.MULTILINE)
        assert anchor in {
            re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings
        }


def test_every_folder_says_what_lives_there() -> None:
    assert [each for each in FOLDERS if not (ROOT / each / "README.md").is_file()] == []


def test_the_first_command_is_one_line_that_asks_without_torch() -> None:
    (line,) = re.findall(r"^python3 -m venv .*haversack estimate.*$", README, re.MULTILINE)
    assert ".venv/bin/pip install '.[server]'" in line
    assert ".venv/bin/haversack plan " in line
    models = re.findall(r"--model (\S+)", line)
    assert models == ["examples/llama3_8b.json"] * 2
    assert (ROOT / models[0]).is_file()


def test_the_second_command_is_one_line_that_ci_finds() -> None:
    wanted = (
        "python3 -m venv .venv && "
        ".venv/bin/pip install -c constraints.txt -e '.[server,torch,dev]' && "
        ".venv/bin/pytest"
    )
    assert README.splitlines().count(wanted) == 1
    ci = (ROOT / ".ci/run").read_text()
    expression = re.search(r"sed -n 's/(\^ \*)\\\((.*)\\\)\$/\\1/p' README.md", ci)
    assert expression is not None
    found = re.findall(f"^ *({expression[2]})$", README, re.MULTILINE)
    assert found == [wanted]


@pytest.mark.parametrize("script", [".ci/run", "scripts/generate_stubs.sh"])
def test_a_script_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    done = subprocess.run(
        ["bash", "-n", ROOT / script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", PYTHON)
def test_python_in_the_readme_runs(block: str) -> None:
    done = run(["-c", block])
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"#> (.*)$", block, re.MULTILINE)
    assert done.stdout.splitlines() == promised
    assert promised


@pytest.mark.parametrize(("line", "shown"), CONSOLES, ids=[line for line, _ in CONSOLES])
def test_what_the_readme_shows_is_what_is_printed(line: str, shown: list[str]) -> None:
    done = run(["-m", "haversack.cli", *shlex.split(line)])
    assert follow(shown, done.stdout.splitlines()), done.stdout + done.stderr


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_gets_an_answer(
    line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = entry.run(shlex.split(line))
    assert code in VERDICTS, capfd.readouterr().err


def test_the_readme_shows_every_verb_and_python() -> None:
    assert [line.split()[0] for line, _ in CONSOLES] == ["estimate", "plan", "verify"]
    assert len(PYTHON) == 1
    assert len(EXAMPLES) == len(list((ROOT / "examples").glob("*.json")))


def test_three_dots_stand_for_lines_left_out() -> None:
    assert follow(["a", "...", "d"], ["a", "b", "c", "d"])
    assert follow(["a", "..."], ["a"])
    assert not follow(["a", "...", "d"], ["a", "b", "c"])
    assert not follow(["a"], ["a", "b"])


def test_the_changelog_keeps_its_form() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[[\d.]+\] - \d{4}-\d\d-\d\d", line) for line in releases[1:])
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert kinds


@pytest.mark.parametrize("file", DECISIONS, ids=[each.stem for each in DECISIONS])
def test_a_decision_is_a_page_with_question_choice_and_cost(file: Path) -> None:
    text = file.read_text()
    assert re.match(rf"# {int(file.stem[:4])}\. \S", text)
    assert len(text.splitlines()) <= 60
    assert [each for each in ("Question", "Choice", "Cost") if f"**{each}.**" not in text] == []
    assert f"]({file.name})" in (file.parent / "README.md").read_text()


def test_decisions_have_numbers_of_their_own() -> None:
    numbers = [each.stem[:4] for each in DECISIONS]
    assert len(set(numbers)) == len(numbers)


def test_every_alert_and_every_metric_is_described() -> None:
    text = (ROOT / "deploy/README.md").read_text()
    named = {each["alert"] for each in ALERTS}
    named |= {
        re.sub(r"_(bucket|count|sum)$", "", metric)
        for query in QUERIES
        for metric in metric_names(query.expr)
        if metric.startswith(("grpc_", "haversack_"))
    }
    assert [each for each in sorted(named) if f"`{each}`" not in text] == []


def test_every_line_of_the_menu_is_described() -> None:
    lines = re.findall(r"^([a-z-]+):([^\n]*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [target for target, rest in lines if "## " not in rest] == []


def test_hooks_run_what_ci_runs() -> None:
    ci = (ROOT / ".ci/run").read_text()
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [each["entry"].replace(" --force-exclude", "") for each in repository["hooks"]]
    assert [entry for entry in entries if entry not in ci] == []
