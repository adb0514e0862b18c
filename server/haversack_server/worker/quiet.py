"""The debug mode of ``checkpoint``, without its records: they would ask for a program to be run.

``debug=True`` records every operation with its lines of C++, which PyTorch has a program of the
system look up; a job may start none. It changes nothing but the text of an error.
"""

import contextlib
from typing import Any

_NAME = "_get_debug_context_and_cb"  # private; where a version has none nothing is left out


def without_records(names: dict[str, Any]) -> None:
    """Have the module of ``checkpoint``, by the names in it, record nothing in its debug mode."""
    if _NAME in names:
        names[_NAME] = lambda: (_no_contexts, _raise)


def _no_contexts() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


def _raise(error: Exception) -> None:
    raise error
