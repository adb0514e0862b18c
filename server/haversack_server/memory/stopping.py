"""Ending work whose caller has gone: a question that long loops ask between two pieces of work."""

from collections.abc import Callable

from haversack.errors import CallCancelledError

Stop = Callable[[], bool]


def never() -> bool:
    """Go on to the end."""
    return False


def go_on(stop: Stop) -> None:
    """Raise once ``stop`` says that nobody waits for the answer any more."""
    if stop():
        raise CallCancelledError("the call ended before its answer was ready")
