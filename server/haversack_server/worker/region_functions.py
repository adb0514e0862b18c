"""Functions of the regions of one run: a name for each, and what they hold that others do not.

A module may have several functions, and a function be made anew for every call, with a list of its
own. But for the first of a name no function is kept, only what of it may change: a tensor that one
holds shall not outlive it for being looked at.
"""

import functools
import itertools
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from haversack_server.worker.region_names import cells_of, owner_of, region_name, said_of

Function = Callable[..., Any]
# What has no state of its own, or is a value of another facet.
_NUMBERS = (bool, int, float, complex, str, bytes)
_STATELESS = (torch.Tensor, *_NUMBERS, type, types.ModuleType)
_MOST_DEPTH = 5  # of functions that functions hold


@dataclass(slots=True)
class RegionFunctions:
    """Names functions by ``names``, the paths of modules by their ids, and keeps them."""

    names: Mapping[int, str]
    _first: dict[str, Function] = field(default_factory=dict)
    _others: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    _codes: dict[str, object] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)  # of things that are kept: no id comes twice

    def name(self, function: Function) -> str:
        """Name a region; each but the first of a name has its own name added, then a number."""
        name, code = region_name(function, self.names), _code(function, self.names)
        short = said_of(_unbound(function), "__name__")
        own = name if name.endswith(short) else f"{name}.{short}"
        numbered = (f"{own} {number}" for number in itertools.count(2))
        possible = itertools.chain((name, own), numbered)
        return next(n for n in possible if self._codes.setdefault(n, code) is code)

    def keep(self, name: str, function: Function, *, in_replay: bool) -> None:
        """Keep the first function of a name, and of others what they alone hold.

        Those that a replay makes have no counterpart in a plain run.
        """
        is_first = name not in self._first
        if in_replay and not is_first:
            return
        held = {label: each for label, each in _held(function) if self._is_new(each)}
        self._known |= {id(each) for each in held.values()}
        if is_first:
            self._first[name] = function
        elif held:
            self._others.setdefault(name, []).append(held)

    def reached(self, without: Collection[str] = ()) -> dict[str, object]:
        """Name what to look at after the step; nothing of regions that are named by ``without``."""
        found: dict[str, object] = {}
        for name, function in self._first.items():
            if name not in without:
                found[f"region {name}"] = function
                for number, held in enumerate(self._others.get(name, ()), 2):
                    path = f"region {name} ({number})"
                    found |= {f"{path}.{label}": _now(each) for label, each in held.items()}
        return found

    def _is_new(self, thing: object) -> bool:
        is_known = id(thing) in self._known or id(thing) in self.names
        return not is_known and _may_change(thing)


def _may_change(thing: object) -> bool:
    if isinstance(thing, tuple | frozenset):
        return any(_may_change(each) for each in thing)
    return thing is not None and not isinstance(thing, _STATELESS)


def _unbound(function: Function) -> Function:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _code(function: Function, names: Mapping[int, str]) -> object:
    """Give what tells functions of one name apart: their code; all of a module's own are alike."""
    function = _unbound(function)
    if id(function) in names or id(owner_of(function)) in names:
        return nn.Module
    inner = function.__func__ if isinstance(function, types.MethodType) else function
    return inner.__code__ if isinstance(inner, types.FunctionType) else type(inner)


def _held(function: Any, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Name what a function holds, functions in it opened: a function may be new for every call."""
    for name, each in _parts(function):
        is_function = isinstance(each, functools.partial | types.FunctionType | types.MethodType)
        if not is_function:
            yield name, each
        elif depth < _MOST_DEPTH:
            yield from ((f"{name}.{label}", held) for label, held in _held(each, depth + 1))


def _parts(function: Any) -> Iterator[tuple[str, object]]:
    if isinstance(function, functools.partial):
        yield "func", function.func
        yield from ((f"args[{place}]", each) for place, each in enumerate(function.args))
        yield from function.keywords.items()
    elif isinstance(function, types.MethodType):
        yield from (("__func__", function.__func__), ("__self__", function.__self__))
    elif isinstance(function, types.FunctionType):
        yield from _variables(function)
        yield from ((f"default {n}", each) for n, each in enumerate(function.__defaults__ or ()))
        yield from (function.__kwdefaults__ or {}).items()
    else:
        yield "itself", function


def _variables(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Name what is in the variables of a closure; of a number the variable, which may be set."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name, held in cells_of(function).items():
        yield name, cells[name] if isinstance(held, _NUMBERS) else held


def _now(thing: object) -> object:
    if not isinstance(thing, types.CellType):
        return thing
    try:
        return thing.cell_contents
    except ValueError:
        return "deleted"
