"""Regions: every call of ``torch.utils.checkpoint.checkpoint``, replaced, overridden and counted.

The code of PyTorch's function itself is exchanged, so that every reference to it is met, however
it was imported; the process of a run ends after it, so nothing is ever put back. Calls that do not
go through that function (``torch.distributed._composable``, compiled regions) are not seen.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.utils.checkpoint
from torch import nn

from haversack.torch.regions import SETTINGS
from haversack_server.worker.quiet import without_records
from haversack_server.worker.region_functions import RegionFunctions
from haversack_server.worker.unrepeatable import unheard

Function = Callable[..., Any]
DEFAULT_CHECK = "default"  # the determinism check of a call that names none


# Private, and -1 outside of a backward; without it every region is taken to have one backward.
_backward_id: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


@dataclass(slots=True)
class Call:
    """One checkpointed call of the forward, with its replays.

    ``depth`` counts the calls that a backward through it replays: itself and those around it, but
    for what is called with gradients off. ``number`` is its place among all calls of the run, as
    they begin; ``around`` is the call that it runs in, or None, and ``place`` its place among the
    calls that one makes. ``earlier`` are the backwards that came through the outermost call around
    it before it was made: none of them replays it.

    ``entries`` counts what has begun, and ``entry`` is the number of the innermost that is open, 0
    where none is: a gradient that a region takes inside itself replays it within its own forward.
    ``stopped`` has for each replay that did not come to its end its backward and how many calls it
    made.
    """

    region: str
    depth: int
    in_replay: bool
    is_reentrant: bool = False
    number: int = 0
    around: "Call | None" = None
    place: int = 0
    earlier: frozenset[int] = frozenset()
    entries: int = 0
    entry: int = 0
    completions: int = 0
    backwards: set[int] = field(default_factory=set)
    stopped: list[tuple[int, int]] = field(default_factory=list)
    calls_made: int = 0

    @property
    def is_replay(self) -> bool:
        """Whether its innermost open entry is a replay, of itself or of a call around it."""
        return self.in_replay or self.entry > 1

    @property
    def expected_entries(self) -> int:
        """One for the forward, and for each backward one replay of its own and of each around.

        A replay of one around that stops before it comes here, since no more is needed, does not
        enter.
        """
        outermost, missed = self, 0
        while outermost.around is not None:
            missed += sum(
                made <= outermost.place
                for backward, made in outermost.around.stopped
                if backward not in self.earlier
            )
            outermost = outermost.around
        return self.depth * max(1, len(outermost.backwards - self.earlier)) + 1 - missed


class Watcher(Protocol):
    """What is told of every entry into a region."""

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Take note of an entry; ``call.entry`` is its number.

        ``given`` names what the entry runs and takes: ``function``, ``args``, ``kwargs``.
        """

    def left(self, call: Call) -> None:
        """Take note of its end, whether it came to its end or not."""


@dataclass(slots=True)
class Regions:
    """Handles the checkpointed calls of one run.

    ``direct`` runs are plain: the function is called as it is. ``overrides`` are settings that
    every call takes in place of its own. ``renamed_check`` gives the name of a determinism check
    that does the same and tells a probe; ``watchers`` are told in this order, and of an entry's end
    in the opposite one. Replays of calls that ``to_the_end`` names are not stopped early.
    """

    names: Mapping[int, str]
    direct: bool
    overrides: Mapping[str, Any] = field(default_factory=dict)
    renamed_check: Callable[[str], str] | None = None
    watchers: Sequence[Watcher] = ()
    to_the_end: Callable[[Call], bool] = lambda call: False
    calls: list[Call] = field(default_factory=list)
    functions: RegionFunctions = field(init=False)
    _open: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.functions = RegionFunctions(self.names)

    def handle(
        self,
        checkpoint: Function,
        function: Function,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Run one checkpointed call, plain or with PyTorch's own function."""
        call = self._new_call(function)
        call.is_reentrant = _is_reentrant(kwargs)
        counted = self._counted(call, function)
        if self.direct:
            return counted(*args, **{k: v for k, v in kwargs.items() if k not in SETTINGS})
        return checkpoint(counted, *args, **self._settings(call, kwargs))

    def follow(
        self,
        run: Callable[[Function], Any],
        function: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        replays: int,
    ) -> Any:
        """Run a call that something else than ``checkpoint`` runs again, plain or by ``run``.

        Each backward runs it again ``replays`` times.
        """
        call = self._new_call(function)
        call.depth = replays if torch.is_grad_enabled() else 0
        counted = self._counted(call, function)
        return counted(*args, **kwargs) if self.direct else run(counted)

    def _settings(self, call: Call, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        overrides = dict(self.overrides)
        if self.to_the_end(call):
            overrides["early_stop"] = False
        if _is_reentrant(kwargs):
            # The reentrant variant compares nothing and always replays to the end.
            overrides.pop("determinism_check", None)
        elif self.renamed_check is not None:
            asked = {"determinism_check": DEFAULT_CHECK, **kwargs, **overrides}
            overrides["determinism_check"] = self.renamed_check(asked["determinism_check"])
        return {**kwargs, **overrides}

    def _new_call(self, function: Function) -> Call:
        name = self.functions.name(function)
        in_replay = any(call.is_replay for call in self._open)
        around = self._open[-1] if self._open else None
        call = Call(name, self._depth(around), in_replay, number=len(self.calls), around=around)
        if around is not None:
            call.place = around.calls_made
            call.earlier = frozenset(self._open[0].backwards)
        self.calls.append(call)
        self.functions.keep(name, function, in_replay=in_replay)
        return call

    def _depth(self, around: Call | None) -> int:
        """Tell how many calls a backward through a new one replays."""
        outside = around.depth if around is not None else 0
        # The reentrant variant runs its forward with gradients off, and its replay with them on.
        in_its_forward = any(
            call.is_reentrant and call.entry == 1 and call.depth for call in self._open
        )
        return outside + (in_its_forward or torch.is_grad_enabled())

    def _counted(self, call: Call, function: Function) -> Function:
        def region(*args: Any, **kwargs: Any) -> Any:
            given = {"function": function, "args": args, "kwargs": kwargs}
            with self._entry(call, given):
                result = function(*args, **kwargs)
                call.completions += 1
            return result

        return region

    @contextlib.contextmanager
    def _entry(self, call: Call, given: Mapping[str, object]) -> Iterator[None]:
        call.entries += 1
        outer, call.entry = (call.entry, call.calls_made), call.entries
        call.calls_made, completions = 0, call.completions
        if call.around is not None and call.entries == 1:
            call.around.calls_made += 1  # only now: a replay may stop at what a call is given
        backward = _backward_id()
        if backward >= 0 and call.entry > 1:  # a forward may run within a backward too
            call.backwards.add(backward)
        self._open.append(call)
        with unheard():
            for watcher in self.watchers:
                watcher.entered(call, given)
        try:
            yield
        finally:
            with unheard():
                for watcher in reversed(self.watchers):
                    watcher.left(call)
            self._open.remove(call)
            if call.entry > 1 and call.completions == completions:
                call.stopped.append((backward, call.calls_made))
            call.entry, call.calls_made = outer


def _is_reentrant(settings: Mapping[str, Any]) -> bool:
    return settings.get("use_reentrant") is not False


def intercept(regions: Regions) -> None:
    """Send every call of ``checkpoint`` in this process to ``regions``, for good."""
    real = _undecorated()
    if real.__code__.co_freevars:
        raise RuntimeError(f"checkpoint of torch {torch.__version__} cannot be intercepted")
    original = types.FunctionType(
        real.__code__, real.__globals__, real.__name__, real.__defaults__, real.__closure__
    )
    original.__kwdefaults__ = real.__kwdefaults__
    handler = functools.partial(regions.handle, original)
    real.__globals__["_haversack_handler"] = handler
    without_records(real.__globals__)
    real.__code__ = _to_handler.__code__


# Runs with the globals of torch.utils.checkpoint, so it can name nothing of this module.
def _to_handler(function: Any, *args: Any, **kwargs: Any) -> Any:
    return globals()["_haversack_handler"](function, *args, **kwargs)


def _undecorated() -> Any:
    function: Any = torch.utils.checkpoint.checkpoint
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def wrap(modules: Iterable[nn.Module], *, use_reentrant: bool) -> None:
    """Run the forward of each module as a region, its hooks outside."""
    for module in modules:
        forward = _as_region(module.forward, use_reentrant)
        module.forward = forward


def _as_region(forward: Function, use_reentrant: bool) -> Function:
    def region_forward(*args: Any, **kwargs: Any) -> Any:
        function = forward
        # The reentrant variant takes no keyword arguments, and a setting's name would be taken
        # for the setting.
        if use_reentrant or any(name in SETTINGS for name in kwargs):
            function, kwargs = functools.partial(forward, **kwargs), {}
        return torch.utils.checkpoint.checkpoint(
            function, *args, use_reentrant=use_reentrant, **kwargs
        )

    region_forward.__wrapped__ = forward  # type: ignore[attr-defined]
    return region_forward
