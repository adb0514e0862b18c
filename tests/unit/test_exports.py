"""What ``import haversack`` offers."""

import ast
import dataclasses
import enum
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

import haversack
import haversack_kernels

ROOT = Path(__file__).parents[2]
# Requests without settings, which the clients make, and the base of the requests.
NOT_PUBLIC = {
    "CancelVerifyRequest", "CancelVerifyResponse", "GetVerifyJobRequest", "GetVerifyJobResponse",
    "ListVerifyDevicesRequest", "ListWorkloadsRequest", "TrainingRun",
}  # fmt: skip
NOUN_MODULES = (
    "basis", "estimate", "evidence", "parallelism", "plan", "profile", "questions",
    "run", "trace", "training", "verify", "verify_applied", "verify_devices",
    "verify_facets", "verify_jobs", "verify_parts", "verify_report", "verify_sharded",
)  # fmt: skip


def names_for_checkers() -> set[str]:
    """What type checkers see: the imports that never run."""
    source = inspect.getsource(haversack)
    block = next(each for each in ast.parse(source).body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.name for each in imports for alias in each.names}


@pytest.mark.parametrize("name", haversack.__all__)
def test_a_public_name_can_be_loaded(name: str) -> None:
    assert getattr(haversack, name) is not None
    assert name in dir(haversack)


def test_checkers_and_programs_see_the_same_names() -> None:
    assert names_for_checkers() == set(haversack.__all__) - {"__version__"}
    assert len(set(haversack.__all__)) == len(haversack.__all__)


def test_every_noun_is_public() -> None:
    modules = [importlib.import_module(f"haversack.{name}") for name in NOUN_MODULES]
    nouns = {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and (dataclasses.is_dataclass(value) or issubclass(value, enum.IntEnum))
    }
    assert nouns - set(haversack.__all__) == NOT_PUBLIC


def test_every_error_is_public() -> None:
    errors = importlib.import_module("haversack.errors")
    assert {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HaversackError)
    } <= set(haversack.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'knapsack'"):
        getattr(haversack, "knapsack")  # noqa: B009 - the attribute is not there


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert haversack.__version__ == haversack_kernels.__version__ == project["version"]
