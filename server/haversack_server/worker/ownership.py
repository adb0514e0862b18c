"""Whose code a module is: the user's, whose state counts, or a library's, whose does not."""

import sys
from functools import cache

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "haversack", "haversack_server"}
ZOO = "haversack_server.worker.zoo"
# What was started by its name, as a worker is, is called by another.
_MAIN: str = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "__main__")
_INSTALLED = ("site-packages", "dist-packages")


def is_users(module: str | None) -> bool:
    """Whether code of a module is the user's: the zoo's is, of all that is ours."""
    name = _MAIN if module == "__main__" else module or ""
    return name.startswith(ZOO) or name.partition(".")[0] not in _LIBRARIES


@cache
def is_installed(module: str | None) -> bool:
    """Whether the file of a module lies among installed packages; the zoo's never does."""
    if (module or "").startswith(ZOO):
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return any(folder in file for folder in _INSTALLED)
