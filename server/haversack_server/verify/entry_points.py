"""Which entry points may run: those under the dotted prefixes that the operator allowed.

A prefix matches whole components: ``mypkg.`` and ``mypkg`` both allow ``mypkg:build`` and
``mypkg.models:build``, and neither allows ``mypkgevil:build``. Nothing is imported here.
"""

from collections.abc import Sequence

from haversack.errors import InvalidRequestError


def check_allowed(entry_point: str, allow: Sequence[str], *, field: str) -> None:
    """Raise InvalidRequestError unless one of the prefixes covers the entry point."""
    if any(covers(prefix, entry_point) for prefix in allow):
        return
    prefixes = f"only {', '.join(allow)} may run here" if allow else "no entry point may run here"
    package = entry_point.partition(":")[0].partition(".")[0]
    raise InvalidRequestError(
        f"{entry_point[:200]!r} is not allowed: {prefixes}; an embedded server takes "
        f"--allow {package[:200]}., a server its own configuration",
        field=field,
    )


def covers(prefix: str, entry_point: str) -> bool:
    """Whether the module of the entry point is the prefix's package or lies in it."""
    package = prefix.removesuffix(".")
    module = entry_point.partition(":")[0]
    return bool(package) and f"{module}.".startswith(f"{package}.")


def check_prefix(prefix: str) -> None:
    """Raise InvalidRequestError unless the prefix is a dotted name, with or without a last dot."""
    if not all(part.isidentifier() for part in prefix.removesuffix(".").split(".")):
        raise InvalidRequestError(
            f"{prefix!r} is not a dotted prefix such as 'mypkg.'; it names whole packages",
            field="allow",
        )
