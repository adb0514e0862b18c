"""Whose code a module is: the user's, whose state counts, or a library's, whose does not."""

import sys

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "haversack", "haversack_server"}
ZOO = "haversack_server.worker.zoo"


def is_users(module: str | None) -> bool:
    """Whether code of a module is the user's: the zoo's is, of all that is ours."""
    name = module or ""
    return name.startswith(ZOO) or name.partition(".")[0] not in _LIBRARIES
