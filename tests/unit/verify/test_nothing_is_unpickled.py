"""No code of the product unpickles, or loads a format that may run code; files are read as data.

What ``torch.distributed.checkpoint`` unpickles are files that the same job wrote: docs/verify.md.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("client/haversack", "kernels/haversack_kernels", "server/haversack_server")
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {"torch.jit.load", "torch.export.load", "torch.hub.load", "torch.package.PackageImporter"}


def faults(code: str) -> Iterator[str]:
    """Name what a piece of code unpickles, or loads as code."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.module
        elif isinstance(node, ast.Call):
            yield from _of_call(ast.unparse(node.func), {k.arg: k.value for k in node.keywords})


def _of_call(name: str, given: dict[str | None, ast.expr]) -> Iterator[str]:
    if name in LOADERS or {"trust_remote_code", "allow_pickle"} & given.keys():
        yield name
    if name == "torch.load" and not _is_true(given.get("weights_only")):
        yield name


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def test_no_code_of_the_product_unpickles() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 500
    found = {str(file): list(faults(file.read_text())) for file in files}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.export.load('model.pt2')",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "numpy.load(path, allow_pickle=True)",
    ],
)
def test_what_unpickles_is_found(code: str) -> None:
    assert list(faults(code))
    assert not list(faults("torch.load(path, weights_only=True)"))
