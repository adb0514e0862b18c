"""Random sources that ``torch.utils.checkpoint`` does not restore: Python's, NumPy's, generators.

A recomputation that draws other numbers than the forward did gives wrong gradients, silently.
PyTorch restores its own default generators; this restores what it does not, before each
recomputation, and afterwards puts back what stood there. Knows no model and no plan.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import torch

from haversack.errors import Violation, check

ContextFn: TypeAlias = Callable[
    [], tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]
]
_Source: TypeAlias = tuple[Callable[[], Any], Callable[[Any], Any]]


def replay_context(
    *, python: bool = True, numpy: bool = True, generators: Sequence[Any] = ()
) -> ContextFn:
    """Make a ``context_fn`` whose recomputations draw the numbers that their forward drew.

        context_fn = replay_context(generators=[self.generator])
        checkpoint(block, hidden, use_reentrant=False, context_fn=context_fn)

    ``python`` and ``numpy`` are the default generators of ``random`` and ``numpy.random``.
    ``generators`` are of type ``torch.Generator``, ``random.Random``, ``numpy.random.Generator``
    or ``numpy.random.RandomState``. One result serves any number of regions, nested ones too.
    Raises ``InvalidRequestError`` for what has no state to restore. Under ``torch.compile``
    PyTorch takes dispatch modes alone, so not this.
    """
    defaults = [random] if python else []
    found = [_source_of(each) for each in (*defaults, *generators)]
    check(
        [
            Violation(f"generators[{place - len(defaults)}]", _refusal(generators, place, defaults))
            for place, source in enumerate(found)
            if source is None
        ]
    )
    sources = [source for source in found if source is not None]
    if numpy:
        sources.append((_numpy_state, np.random.set_state))

    def context_fn() -> tuple["_Recorded", "_Replayed"]:
        recorded = _Recorded(sources)
        return recorded, _Replayed(recorded)

    return context_fn


class _Recorded(contextlib.AbstractContextManager[None]):
    """Around the forward: notes the states at its beginning."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        self.sources = sources
        self.states: list[Any] = []

    def __enter__(self) -> None:
        self.states = _states(self.sources)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the states as the forward left them."""


class _Replayed(contextlib.AbstractContextManager[None]):
    """Around a recomputation: sets the states of the forward, then those that stood there.

    It is entered as often as the region is recomputed, also from within itself.
    """

    def __init__(self, recorded: _Recorded) -> None:
        self._recorded = recorded
        self._outside: list[list[Any]] = []

    def __enter__(self) -> None:
        self._outside.append(_states(self._recorded.sources))
        _set(self._recorded.sources, self._recorded.states)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An early stop leaves by an exception, which goes on to PyTorch.
        _set(self._recorded.sources, self._outside.pop())


def _states(sources: Sequence[_Source]) -> list[Any]:
    return [get() for get, _ in sources]


def _set(sources: Sequence[_Source], states: Sequence[Any]) -> None:
    for (_, put), state in zip(sources, states, strict=True):
        put(state)


def _source_of(thing: Any) -> _Source | None:
    """Find how the state of a generator is read and set; None if it has none."""
    if isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    if isinstance(thing, np.random.Generator):
        return _bit_generator(thing.bit_generator)
    if isinstance(thing, np.random.RandomState):
        return lambda: thing.get_state(legacy=False), thing.set_state
    if thing is random or _is_python_generator(thing):
        return thing.getstate, thing.setstate
    return None


def _is_python_generator(thing: Any) -> bool:
    # The system's own source cannot be set back.
    return isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom)


def _bit_generator(bits: Any) -> _Source:
    return lambda: bits.state, lambda state: setattr(bits, "state", state)


def _numpy_state() -> Any:
    return np.random.get_state(legacy=False)


def _refusal(generators: Sequence[Any], place: int, defaults: Sequence[Any]) -> str:
    kind = type(generators[place - len(defaults)]).__name__
    return (
        f"the state of a {kind} cannot be restored; give a torch.Generator, a random.Random, a "
        "numpy.random.Generator or a numpy.random.RandomState"
    )
