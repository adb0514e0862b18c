"""What one object of Python reaches, and how its own state is spelled.

Attributes, containers, closures, the globals that functions name, class attributes of the user's
classes. Not seen: what lies behind properties and in C extensions, and the globals of libraries.
"""

import collections
import contextlib
import ctypes
import enum
import functools
import io
import itertools
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import nn

from haversack.torch.sharding import own_part
from haversack_server.worker.rng import digest

Children = Iterable[tuple[str, Any]]
Look = Callable[[Any], tuple[str, Children]]

SCALARS = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = (enum.Enum, torch.dtype, torch.device, range, pathlib.PurePath, itertools.count)
_LONG = 64  # a sequence of scalars that is longer is one entry, not one for each
_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "haversack", "haversack_server"}
ZOO = "haversack_server.worker.zoo"
# Buffers are a facet of their own; forward is where a region is wrapped.
_MODULE_PARTS = frozenset({"_parameters", "_buffers", "_modules", "forward"})


def look(thing: Any) -> tuple[str, Children]:
    """Spell an object's own state, and name what it reaches; a global is named by its full path."""
    for kinds, looks in _LOOKS:
        if isinstance(thing, kinds):
            return looks(thing)
    return _object(thing)


def spelled(scalar: Any) -> str:
    """Spell a number or a string, a long one by its digest."""
    text = repr(scalar)
    return text if len(text) <= 80 else f"{text[:40]}... {digest(text.encode())}"


def tensor_digest(
    tensor: torch.Tensor, *, skip_content: bool = False, as_it_lies: bool = False
) -> tuple[str, str]:
    """Spell dtype and shape of a tensor, and digest its content.

    ``as_it_lies`` digests a transposed tensor in the order of its memory, without copying it: for
    tensors whose strides are equal where their shapes are.
    """
    about = f"tensor {tensor.dtype} {tuple(tensor.shape)}"
    if skip_content or tensor.is_meta:
        return about, ""
    tensor = own_part(tensor)
    flat = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    if as_it_lies:
        flat = flat.permute(sorted(range(flat.dim()), key=flat.stride, reverse=True))
    flat = flat.resolve_conj().resolve_neg().cpu().contiguous().flatten().view(torch.uint8)
    # Not by numpy(): a storage that it has seen cannot be resized, as ``fully_shard`` does.
    content = (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())
    return about, digest(memoryview(content))


def _tensor(tensor: torch.Tensor) -> tuple[str, Children]:
    return " ".join(tensor_digest(tensor)), ()


def _array(array: Any) -> tuple[str, Children]:
    content = "" if array.dtype == object else digest(numpy.ascontiguousarray(array).tobytes())
    return f"array {array.dtype} {array.shape} {content}", ()


def _module(module: nn.Module) -> tuple[str, Children]:
    attributes = {
        f".{name}": value
        for name, value in vars(module).items()
        if name not in _MODULE_PARTS and not (name.startswith("_") and value in ({}, None, set()))
    }
    parts = {f".{name}": part for name, part in {**module._parameters, **module._modules}.items()}
    return "", [*attributes.items(), *parts.items(), *_of_class(type(module))]


def _mapping(mapping: Mapping[Any, Any]) -> tuple[str, Children]:
    items = [(f"[{_key(key)}]", value) for key, value in mapping.items()]
    return f"{type(mapping).__name__} of {len(mapping)}", items


def _sequence(sequence: Any) -> tuple[str, Children]:
    word = f"{type(sequence).__name__} of {len(sequence)}"
    if len(sequence) > _LONG and all(isinstance(each, SCALARS) for each in sequence):
        return f"{word} {digest(repr(list(sequence)).encode())}", ()
    return word, [(f"[{place}]", each) for place, each in enumerate(sequence)]


def _set(values: Any) -> tuple[str, Children]:
    keys = sorted(_key(value) for value in values)
    return f"{type(values).__name__} of {len(values)} {digest(repr(keys).encode())}", ()


def _key(key: Any) -> str:
    return spelled(key) if isinstance(key, (*SCALARS, *_PLAIN)) else type(key).__qualname__


def _plain(thing: Any) -> tuple[str, Children]:
    return repr(thing), ()


def _partial(partial: Any) -> tuple[str, Children]:
    parts = {".func": partial.func, ".args": partial.args, ".keywords": partial.keywords}
    return "", parts.items()


def _method(method: types.MethodType) -> tuple[str, Children]:
    return "", [(".__self__", method.__self__), (".__func__", method.__func__)]


def _function(function: types.FunctionType) -> tuple[str, Children]:
    return ("", list(_of_function(function))) if _is_users(function.__module__) else ("", ())


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # a variable that is not assigned yet
            yield f".{name}", cell.cell_contents
    yield from ((f".{name}", value) for name, value in vars(function).items())
    yield ".__defaults__", (function.__defaults__, function.__kwdefaults__)
    names = set(_names_in(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        yield from _of_global(function.__module__, name, function.__globals__[name], names)


def _of_global(module: str, name: str, value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, types.ModuleType):
        yield f"{module}.{name}", value
    elif _is_users(value.__name__):
        # What the function reads of a module is among the other names in its code.
        for attribute in sorted(names & vars(value).keys()):
            yield f"{value.__name__}.{attribute}", vars(value)[attribute]


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _class(kind: type) -> tuple[str, Children]:
    return "", list(_of_class(kind))


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if not _is_users(base.__module__):
            continue
        for name, value in vars(base).items():
            if not name.startswith("__") or isinstance(value, types.FunctionType):
                yield f"{base.__module__}.{base.__qualname__}.{name}", value


def _generator(generator: Any) -> tuple[str, Children]:
    frame: types.FrameType | None = generator.gi_frame
    if frame is None:
        return "generator at its end", ()
    held = [(f".{name}", value) for name, value in frame.f_locals.items()]
    return f"generator at instruction {frame.f_lasti}", held


def _stream(stream: io.IOBase) -> tuple[str, Children]:
    place = stream.tell() if not stream.closed and stream.seekable() else "an unknown place"
    return f"stream at {place}", ()


def _object(thing: Any) -> tuple[str, Children]:
    kind = type(thing)
    if hasattr(thing, "__next__") and kind.__module__ == "builtins":
        # Iterators of builtins say in their reduction how far they are.
        return f"{kind.__name__} {_key(thing.__reduce__()[2:])}", [("[]", thing.__reduce__()[1:])]
    if not _is_users(kind.__module__):
        return "", ()
    slots = [name for base in kind.__mro__ for name in _slots(base) if hasattr(thing, name)]
    attributes = {
        **{name: getattr(thing, name) for name in slots},
        **getattr(thing, "__dict__", {}),
    }
    children = [(f".{name}", value) for name, value in attributes.items()]
    return kind.__qualname__, [*children, *_of_class(kind)]


def _slots(base: type) -> tuple[str, ...]:
    slots: Any = vars(base).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_users(module: str | None) -> bool:
    """Whether code of a module is the user's: the zoo's is, of all that is ours."""
    name = module or ""
    return name.startswith(ZOO) or name.partition(".")[0] not in _LIBRARIES


_LOOKS: tuple[tuple[Any, Look], ...] = (
    (torch.Tensor, _tensor),
    (numpy.ndarray, _array),
    (nn.Module, _module),
    (_PLAIN, _plain),
    (Mapping, _mapping),
    ((list, tuple, collections.deque), _sequence),
    ((set, frozenset), _set),
    (functools.partial, _partial),
    (types.MethodType, _method),
    (types.FunctionType, _function),
    (type, _class),
    (types.GeneratorType, _generator),
    (io.IOBase, _stream),
)
