"""Names of regions: the module that one runs, else its function. No region is run here."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Function = Callable[..., Any]
_FORWARDS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")
_SEGMENT = "checkpoint_sequential.<locals>.run_function.<locals>.forward"


def region_name(function: Function, names: Mapping[int, str]) -> str:
    """Name a region by the module that it runs, else by its function.

    ``names`` are paths of modules by their ids, the model itself first.
    """
    while isinstance(function, functools.partial):
        given = (*function.args, *function.keywords.values())
        bound = next((names[id(held)] for held in given if id(held) in names), None)
        if bound is not None:
            return bound
        function = function.func
    if id(function) in names:
        return names[id(function)]
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    owner = names.get(id(getattr(function, "__self__", None)))
    if owner is not None:
        short = name.rpartition(".")[2]
        return owner if short in _FORWARDS else f"{owner}.{short}"
    if name == _SEGMENT:
        return _of_segment(function, names) or name
    return _by_what_it_holds(function, names) or name


def _by_what_it_holds(function: Any, names: Mapping[int, str]) -> str:
    """Name a function of its own by a module in its closure or defaults; "" if there is none.

    Where that is the model itself, which may make several, its own name is added.
    """
    cells = _closure(function).values()
    given = (*cells, *(getattr(function, "__defaults__", None) or ()))
    held = [id(each) for each in given if id(each) in names]
    model = next(iter(names), None)
    inner = next((each for each in held if each != model), None)
    if inner is not None:
        return names[inner]
    short = getattr(function, "__name__", "")
    return f"{names[held[0]]}.{short}" if held else ""


def _of_segment(function: Any, names: Mapping[int, str]) -> str:
    """Name a segment of ``checkpoint_sequential`` by its first and its last module."""
    held = _closure(function)
    if not {"functions", "start", "end"} <= held.keys():
        return ""
    ends = [held["functions"][held[place]] for place in ("start", "end")]
    return " to ".join(dict.fromkeys(region_name(each, names) for each in ends))


def _closure(function: Any) -> dict[str, Any]:
    """Give the variables of a closure, but for those that are not assigned yet."""
    return dict(_cells(function))


def _cells(function: Any) -> Iterator[tuple[str, Any]]:
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars if cells else (), cells, strict=True):
        with contextlib.suppress(ValueError):
            yield name, cell.cell_contents
