"""What code reaches: closures, defaults and globals of functions, attributes of classes.

Of the user's code alone. A global is found by its name in the code, one of a module that is
imported inside a function by the name of that module, and one that is asked of ``globals()``,
``getattr`` and the like by the text that it is asked with.
"""

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from haversack_server.worker.ownership import is_installed, is_users

Named = Iterator[tuple[str, Any]]
# Names in code that asks for others by their text, of a module's dictionary or of its attributes.
_BY_TEXT = frozenset(
    {"globals", "vars", "__dict__", "getattr", "setattr", "modules", "import_module"}
)


def of_function(function: types.FunctionType) -> Named:
    """Name what a function reaches; nothing of a library's."""
    if not is_users(function.__module__):
        return
    names = set(_names_in(function.__code__))
    seen: set[int] = set()
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # a variable that is not assigned yet
            held = cell.cell_contents
            if isinstance(held, types.ModuleType):
                yield from _of_global(function.__module__, name, held, names, seen)
            else:
                yield f".{name}", held
    yield from ((f".{name}", value) for name, value in vars(function).items())
    yield ".__defaults__", (function.__defaults__, function.__kwdefaults__)
    for name in sorted(names):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield from _of_global(function.__module__, name, value, names, seen)
        elif name in sys.modules:
            yield from _of_global(function.__module__, name, sys.modules[name], names, seen)


def _of_global(module: str, name: str, value: Any, names: set[str], seen: set[int]) -> Named:
    """Name a global, and of a module of the user's what the function reads, as deep as it does.

    What it reads of a module is among the other names in its code.
    """
    if not isinstance(value, types.ModuleType):
        yield f"{module}.{name}", value
    elif is_users(value.__name__) and id(value) not in seen:
        seen.add(id(value))  # packages name their modules, and those their packages
        for attribute in sorted(names & vars(value).keys()):
            found = vars(value)[attribute]
            yield from _of_global(value.__name__, attribute, found, names, seen)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    asks_by_text = not _BY_TEXT.isdisjoint(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
        elif asks_by_text and isinstance(constant, str):
            yield constant


def of_module(module: types.ModuleType) -> Named:
    """Name the globals of a module of the user's own that something holds; of no other module."""
    if is_users(module.__name__) and not is_installed(module.__name__):
        for name, value in vars(module).items():
            if not name.startswith("__") and not isinstance(value, types.ModuleType):
                yield f"{module.__name__}.{name}", value


def of_class(kind: type) -> Named:
    """Name the attributes of a class and of those that it has them from, of the user's alone.

    A class of classes is one of those.
    """
    if is_users(type(kind).__module__):
        yield from of_class(type(kind))
    for base in kind.__mro__:
        if not is_users(base.__module__):
            continue
        for name, value in vars(base).items():
            if not name.startswith("__") or isinstance(value, types.FunctionType):
                yield f"{base.__module__}.{base.__qualname__}.{name}", value


def of_method(method: types.MethodType) -> Named:
    """Name what a bound method is of."""
    yield ".__self__", method.__self__
    yield ".__func__", method.__func__


def of_builtin(method: types.BuiltinMethodType) -> Named:
    """Name the object whose method it is, as that of ``log.append``; functions have none."""
    if not isinstance(method.__self__, types.ModuleType | type | None):
        yield ".__self__", method.__self__


def of_descriptor(descriptor: Any) -> Named:
    """Name the functions behind a property, a static method or a class method."""
    if not isinstance(descriptor, property):
        yield ".__func__", descriptor.__func__
        return
    yield from ((f".{n}", f) for n in ("fget", "fset", "fdel") if (f := getattr(descriptor, n)))


def of_partial(partial: functools.partial[Any]) -> Named:
    """Name what a partial calls, and with what."""
    yield ".func", partial.func
    yield ".args", partial.args
    yield ".keywords", partial.keywords


def of_generator(generator: Any) -> Named:
    """Name the variables of a generator or coroutine under way, and what it yields from."""
    for waits_for in ("gi_yieldfrom", "cr_await", "ag_await"):
        held = getattr(generator, waits_for, None)
        if held is not None:
            yield f".{waits_for}", held
    frame = frame_of(generator)
    yield from ((f".{name}", value) for name, value in (frame.f_locals if frame else {}).items())


def frame_of(generator: Any) -> types.FrameType | None:
    """Give the frame of a generator or coroutine; None where it has ended."""
    named = (getattr(generator, name, None) for name in ("gi_frame", "cr_frame", "ag_frame"))
    return next((frame for frame in named if frame is not None), None)
