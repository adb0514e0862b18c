"""Every error a caller can see, and the status it travels as.

    HaversackError
    ├── InvalidRequestError   INVALID_ARGUMENT     the request is wrong; `violations` names fields
    ├── NotSupportedError     UNIMPLEMENTED        a right request that this version does not answer
    ├── NotFoundError         NOT_FOUND            no workload or job of that name
    ├── MissingExtraError     FAILED_PRECONDITION  a package that the answer needs is not installed
    ├── OverloadedError       RESOURCE_EXHAUSTED   too much at once; retry after `retry_after_ns`
    ├── DeadlineError         DEADLINE_EXCEEDED    the deadline passed before the answer
    ├── CallCancelledError    CANCELLED            the caller went away or cancelled
    ├── UnavailableError      UNAVAILABLE          no server answers
    └── InternalError         INTERNAL             a fault of ours, with an id for the log

Knows nothing of gRPC: a status is its name, which the service and the client look up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: the path of the field, and a sentence on what would do."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class HaversackError(Exception):
    """What every error of ours is; ``str()`` is one clear sentence."""

    status: ClassVar[str] = "UNKNOWN"

    @property
    def message(self) -> str:
        """The sentence."""
        return str(self)


class InvalidRequestError(HaversackError):
    """The request breaks a rule; ``violations`` has every rule that was found broken.

    Of a server's answer it has the first of them; ``total`` says how many there are.
    """

    status = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        violations: Sequence[Violation] = (),
        total: int = 0,
    ) -> None:
        # Two readers of one field may find the same fault.
        self.violations = tuple(dict.fromkeys(violations)) or (Violation(field, message),)
        self.total = max(total, len(self.violations))
        super().__init__(_sentence(self.violations))

    @property
    def field(self) -> str:
        """The path of the first field at fault, such as ``candidates.size_bytes[17]``."""
        return self.violations[0].field

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.violations, self.total)


class NotSupportedError(HaversackError):
    """A request that is right in itself, and that this version does not answer."""

    status = "UNIMPLEMENTED"


class NotFoundError(HaversackError):
    """There is no workload or job of that name."""

    status = "NOT_FOUND"


class MissingExtraError(HaversackError):
    """A package that the answer needs is not installed where it is needed."""

    status = "FAILED_PRECONDITION"


class OverloadedError(HaversackError):
    """The server has too much to do; ``retry_after_ns`` says when to come back."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, *, retry_after_ns: int = 0) -> None:
        self.retry_after_ns = retry_after_ns
        super().__init__(message)


class DeadlineError(HaversackError):
    """The deadline passed before there was an answer."""

    status = "DEADLINE_EXCEEDED"


class CallCancelledError(HaversackError):
    """The call was cancelled, by its caller or because the caller went away."""

    status = "CANCELLED"


class UnavailableError(HaversackError):
    """No server answers at the address."""

    status = "UNAVAILABLE"


class InternalError(HaversackError):
    """A fault of ours; the sentence bears the id under which the server logged it."""

    status = "INTERNAL"


def check(violations: Sequence[Violation]) -> None:
    """Raise what was found, all at once; return if nothing was."""
    if violations:
        raise InvalidRequestError(violations=violations)


def _sentence(violations: Sequence[Violation]) -> str:
    first = str(violations[0])
    rest = len(violations) - 1
    return f"{first} (and {rest} more)" if rest else first


def _rebuild(violations: Sequence[Violation], total: int) -> InvalidRequestError:
    return InvalidRequestError(violations=violations, total=total)
