"""Every call of ours that a document writes in Python has keywords that its function takes."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("torch", reason="functions of haversack.torch are looked up")

import haversack
import haversack.torch
from haversack import Client
from haversack.keywords import PlanOptions
from haversack.requests import plan_request

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS += [ROOT / "examples/README.md", ROOT / "deploy/README.md"]
# Where a keyword is told in a table, without its call: the column of that heading.
COLUMN = re.compile(r"^\|[^\n]*\bas keywords\b[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)", re.MULTILINE)

Call = tuple[str, str, frozenset[str]]  # the document, the function, its keywords


def functions() -> dict[str, Callable[..., Any]]:
    """Give what documents call, by name: the client's methods, and what is exported."""
    found = {name: getattr(haversack, name) for name in haversack.__all__}
    found |= {name: getattr(haversack.torch, name) for name in haversack.torch.__all__}
    methods = inspect.getmembers(Client, inspect.isfunction)
    return {
        **{name: each for name, each in found.items() if callable(each)},
        **{f"client.{name}": each for name, each in methods if not name.startswith("_")},
    }


def keywords_of(function: Callable[..., Any]) -> set[str] | None:
    """Give the keywords that a function takes, those of its ``Unpack`` too; None takes any."""
    taken: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            taken.add(parameter.name)
        elif get_args(parameter.annotation):
            taken |= set(get_args(parameter.annotation)[0].__annotations__)
        else:
            return None
    return taken


def pieces(text: str) -> Iterator[str]:
    """Give the Python of a document: blocks, and what stands in backticks within its lines."""
    yield from re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", without_blocks):
        yield " ".join(span.split())
    for rows in COLUMN.findall(text):
        for row in rows.splitlines():
            spans = re.findall(r"`([^`]+)`", row.split("|")[2])
            yield from (f"client.plan({each})" for each in spans)


def calls_in(source: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Give each call with keywords; what is no Python, such as a command line, has none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            named = frozenset(each.arg for each in node.keywords if each.arg is not None)
            yield ast.unparse(node.func).removeprefix("haversack.").removeprefix("torch."), named


def documented() -> Iterator[Call]:
    known = functions()
    for file in DOCUMENTS:
        for piece in pieces(file.read_text()):
            for name, named in calls_in(piece):
                if name in known and named:
                    yield str(file.relative_to(ROOT)), name, named


CALLS = sorted(set(documented()), key=str)
IDS = [f"{document}:{name}" for document, name, _ in CALLS]


@pytest.mark.parametrize(("document", "name", "named"), CALLS, ids=IDS)
def test_keywords_of_a_document_are_those_of_the_function(
    document: str, name: str, named: frozenset[str]
) -> None:
    taken = keywords_of(functions()[name])
    assert taken is None or named <= taken, f"{document}: {sorted(named - taken)}"


def test_the_documents_call_every_verb_and_every_function_of_torch() -> None:
    called = {name for _, name, _ in CALLS}
    assert called >= {"client.estimate", "client.plan", "client.verify", "profile", "measure"}
    assert "docs/plan-torch.md" in {document for document, _, _ in CALLS}


def test_what_builds_a_plan_takes_what_its_client_does() -> None:
    assert keywords_of(plan_request) == set(PlanOptions.__annotations__)


def test_a_keyword_that_no_function_takes_is_found() -> None:
    ((name, named),) = calls_in("client.plan(profile=found, budjet='1GiB')")
    taken = keywords_of(functions()[name])
    assert taken is not None
    assert named - taken == {"budjet"}
