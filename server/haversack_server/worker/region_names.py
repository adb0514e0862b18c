"""Names of regions: the module that one runs, else its function. No region is run here."""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Function = Callable[..., Any]
# What says of itself what Python has it say. An object of the user's may answer whatever it is
# asked, or raise.
_TRUSTED = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    type,
)
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
    name = said_of(function, "__qualname__")
    owner = names.get(id(owner_of(function)))
    if owner is not None:
        short = name.rpartition(".")[2]
        return owner if short in _FORWARDS else f"{owner}.{short}"
    if name == _SEGMENT:
        return _of_segment(function, names) or name
    return _by_what_it_holds(function, names) or name


def said_of(function: Any, attribute: str) -> str:
    """Give what a function is called by an attribute of its own, else the name of its type."""
    of_type: str = type(function).__qualname__
    ask = getattr if isinstance(function, _TRUSTED) else inspect.getattr_static
    said: Any = ask(function, attribute, None)
    return said if type(said) is str else of_type


def owner_of(function: Any) -> object:
    """Give the object whose method a function is, if it is one."""
    is_method = isinstance(function, _TRUSTED) and not isinstance(function, type)
    return getattr(function, "__self__", None) if is_method else None


def _by_what_it_holds(function: Any, names: Mapping[int, str]) -> str:
    """Name a function of its own by a module in its closure or defaults; "" if there is none.

    Where that is the model itself, which may make several, its own name is added.
    """
    defaults = function.__defaults__ if isinstance(function, types.FunctionType) else None
    given = (*cells_of(function).values(), *(defaults or ()))
    held = [id(each) for each in given if id(each) in names]
    model = next(iter(names), None)
    inner = next((each for each in held if each != model), None)
    if inner is not None:
        return names[inner]
    return f"{names[held[0]]}.{said_of(function, '__name__')}" if held else ""


def cells_of(function: Any) -> dict[str, Any]:
    """Give the variables of a closure, but for those that are not assigned yet."""
    return dict(_cells(function)) if isinstance(function, types.FunctionType) else {}


def _cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):
            yield name, cell.cell_contents


def _of_segment(function: Any, names: Mapping[int, str]) -> str:
    """Name a segment of ``checkpoint_sequential`` by its first and its last module."""
    held = cells_of(function)
    if not {"functions", "start", "end"} <= held.keys():
        return ""
    ends = [held["functions"][held[place]] for place in ("start", "end")]
    return " to ".join(dict.fromkeys(region_name(each, names) for each in ends))
