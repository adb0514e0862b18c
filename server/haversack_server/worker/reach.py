"""What one object of Python reaches, and how its own state is spelled.

Attributes, containers, closures, the globals that functions name, class attributes of the user's
classes. Not seen: what lies in C extensions, and the globals of libraries.
"""

import collections
import enum
import functools
import io
import itertools
import pathlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data.dataloader import _BaseDataLoaderIter

from haversack.torch.sharding import own_part
from haversack_server.worker import reach_code, reach_library
from haversack_server.worker.attributes import attributes_of
from haversack_server.worker.device_digest import LARGE_BYTES, digest_in_place
from haversack_server.worker.memory_digest import memory_digest
from haversack_server.worker.ownership import is_users
from haversack_server.worker.reach_module import of_module
from haversack_server.worker.rng import digest
from haversack_server.worker.tensor_parts import VAST_BYTES, parts, row, unrepeated

Children = Iterable[tuple[str, Any]]
Look = Callable[[Any], tuple[str, Children]]

SCALARS = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = (enum.Enum, torch.dtype, torch.device, range, pathlib.PurePath, itertools.count)
_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")  # private; kept by C
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_DEVICES = ("cuda",)  # whose memory is slow to copy and fast to read
_LONG = 64  # a sequence of scalars that is longer is one entry, not one for each
_VAST = 1000  # so is a mapping of them, and a sequence of tuples of them: a vocabulary, its merges


def look(thing: Any) -> tuple[str, Children]:
    """Spell an object's own state, and name what it reaches; a global is named by its full path.

    An object that answers no question about itself is spelled by its type alone.
    """
    try:
        record, children = _look(thing)
        return record, list(children)
    except Exception as error:  # of the user's object, which may raise whatever it is asked
        said = f"{type(thing).__name__} that cannot be looked at: {type(error).__name__}"
        return said, _held_at_least(thing)


def _held_at_least(thing: Any) -> Children:
    """Name the attributes of an object that answers no more than that, if it does."""
    try:
        return _named(attributes_of(thing))
    except Exception:
        return ()


def _look(thing: Any) -> tuple[str, Children]:
    for kinds, looks in _LOOKS:
        if isinstance(thing, kinds):
            return looks(thing)
    for kinds, looks in _CONTAINERS:
        if isinstance(thing, kinds):
            record, children = looks(thing)
            return record, [*children, *_attributes(thing)]
    record, children = reach_library.look(thing)
    own = type(thing).__qualname__ if is_users(type(thing).__module__) else ""
    return record or own, [*children, *_attributes(thing)]


def spelled(scalar: Any) -> str:
    """Spell a number or a string, a long one by its digest."""
    text = repr_of(scalar)
    return text if len(text) <= 80 else f"{text[:40]}... {digest(text.encode())}"


def repr_of(scalar: Any) -> str:
    """Spell a number or a string in full; one that has no such spelling by another."""
    try:
        return repr(scalar)
    except Exception as error:  # Python spells no integer of more than 4,300 digits
        if isinstance(scalar, int):
            return hex(scalar)
        return f"{type(scalar).__name__} that cannot be spelled: {type(error).__name__}"


def tensor_digest(
    tensor: torch.Tensor, *, skip_content: bool = False, as_it_lies: bool = False
) -> tuple[str, str]:
    """Spell dtype and shape of a tensor, and digest its content.

    ``as_it_lies`` digests a transposed tensor in the order of its memory, without copying it: for
    tensors whose strides are equal where their shapes are.
    """
    with torch._C.DisableTorchFunctionSubclass():  # a class may count what it is asked
        return _digest(tensor, skip_content=skip_content, as_it_lies=as_it_lies)


def _digest(tensor: torch.Tensor, *, skip_content: bool, as_it_lies: bool) -> tuple[str, str]:
    if is_lazy(tensor):
        return f"tensor {tensor.dtype} no shape yet", ""
    size = len(tensor.unbind()) if tensor.is_nested else tuple(tensor.shape)
    about = f"tensor {tensor.dtype} {size}"
    if skip_content or tensor.is_meta:
        return about, ""
    held = parts(own_part(tensor))
    return about, " ".join(_content(each, as_it_lies=as_it_lies) for _, each in held)


def _content(flat: torch.Tensor, *, as_it_lies: bool) -> str:
    """Digest the content of an array; of a vast one that repeats itself, what it repeats."""
    if flat.numel() * flat.element_size() > VAST_BYTES:
        flat = unrepeated(flat)
    if as_it_lies:
        flat = flat.permute(sorted(range(flat.dim()), key=flat.stride, reverse=True))
    flat = flat.resolve_conj().resolve_neg()
    if flat.device.type in _DEVICES and flat.numel() * flat.element_size() >= LARGE_BYTES:
        return digest_in_place(flat.contiguous())
    flat = row(flat.cpu()).view(torch.uint8)
    # Not by numpy(): a storage that it has seen cannot be resized, as ``fully_shard`` does.
    return memory_digest(flat.data_ptr(), flat.numel())


def _tensor(tensor: torch.Tensor) -> tuple[str, Children]:
    return " ".join(tensor_digest(tensor)), held_with_hooks(tensor)


def held_by_tensor(tensor: torch.Tensor) -> Children:
    """Name the attributes that were put on a tensor."""
    # A subclass keeps its innards under private names, and torch.compile what it marks.
    is_plain = type(tensor) in _PLAIN_TENSORS
    named = ((n, value) for n, value in vars(tensor).items() if not n.startswith("_dynamo_"))
    return [(f".{name}", value) for name, value in named if is_plain or name[0] != "_"]


def held_with_hooks(tensor: torch.Tensor) -> Children:
    """Name the attributes of a tensor and the hooks for its gradient, which no region reads."""
    # In their order: their keys are counted over all hooks of a process.
    hooks = ((name, getattr(tensor, name, None)) for name in _HOOKS_OF_TENSORS)
    named = [(f".{name}", list(held.values())) for name, held in hooks if held]
    return [*held_by_tensor(tensor), *named]


def _array(array: Any) -> tuple[str, Children]:
    about = f"array {array.dtype} {array.shape}"
    if array.dtype.hasobject:
        return about, [(".flat", list(array.flat))]
    return f"{about} {digest(numpy.ascontiguousarray(array).tobytes())}", ()


def _optimizer(optimizer: torch.optim.Optimizer) -> tuple[str, Children]:
    # Its settings: what it keeps of gradients follows from those.
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return "", [(".param_groups", groups)]


def _stateful(thing: Any) -> tuple[str, Children]:
    return "", _named(thing.state_dict())


def _named(attributes: Mapping[str, Any]) -> Children:
    return [(f".{name}", value) for name, value in attributes.items()]


def _mapping(mapping: Mapping[Any, Any]) -> tuple[str, Children]:
    # As a plain dictionary: one of a library may load much of it when it is asked for its items.
    held = list(dict.items(mapping) if isinstance(mapping, dict) else mapping.items())
    word = f"{type(mapping).__name__} of {len(held)}"
    if len(held) > _VAST and all(_is_flat(each) for pair in held for each in pair):
        in_any_order = sum(int(digest(repr(pair).encode()), 16) for pair in held)
        return f"{word} {in_any_order:x}", ()
    return word, [(f"[{key_of(key)}]", value) for key, value in held]


def _sequence(sequence: Any) -> tuple[str, Children]:
    word = f"{type(sequence).__name__} of {len(sequence)}"
    is_one = _is_flat if len(sequence) > _VAST else _is_scalar
    if len(sequence) > _LONG and all(map(is_one, sequence)):
        return f"{word} {digest(repr(list(sequence)).encode())}", ()
    return word, [(f"[{place}]", each) for place, each in enumerate(sequence)]


def _is_scalar(thing: Any) -> bool:
    return isinstance(thing, SCALARS)


def _is_flat(thing: Any) -> bool:
    return _is_scalar(thing) or (type(thing) is tuple and all(map(_is_scalar, thing)))


def _set(values: Any) -> tuple[str, Children]:
    members = [(key_of(value), value) for value in values]
    keys = sorted(key for key, _ in members)
    # Without an order only a member whose key is its own can be told from one run to another.
    often = collections.Counter(keys)
    held = [(f"[{key}]", v) for key, v in members if often[key] == 1 and not _is_spelled(v)]
    return f"{type(values).__name__} of {len(members)} {digest(repr(keys).encode())}", held


def key_of(key: Any) -> str:
    """Spell the key of a mapping; of an object that is made anew in every run its type alone."""
    if isinstance(key, tuple):
        return f"({', '.join(map(key_of, key))})"
    return spelled(key) if _is_spelled(key) else type(key).__qualname__


def _is_spelled(key: Any) -> bool:
    return isinstance(key, (*SCALARS, *_PLAIN))


def _plain(thing: Any) -> tuple[str, Children]:
    return repr(thing), ()


def _member(member: enum.Enum) -> tuple[str, Children]:
    own = {name: value for name, value in vars(member).items() if name[0] != "_"}
    return repr(member), _named(own)


def _generator(generator: Any) -> tuple[str, Children]:
    frame = reach_code.frame_of(generator)
    place = f"instruction {frame.f_lasti}" if frame else "its end"
    return f"{type(generator).__name__} at {place}", reach_code.of_generator(generator)


def _batches(iterator: Any) -> tuple[str, Children]:
    return f"batches, {iterator._num_yielded} of them given", ()


def _stream(stream: Any) -> tuple[str, Children]:
    if stream in _PRINTED_TO:
        return "", ()  # where in the job's output it is depends on what was printed before
    place = stream.tell() if not stream.closed and stream.seekable() else "an unknown place"
    in_memory = isinstance(stream, io.StringIO | io.BytesIO) and not stream.closed
    return f"stream at {place}", [(".getvalue()", stream.getvalue())] if in_memory else ()


def _attributes(thing: Any) -> Children:
    """Name the attributes of an object of the user's class, and those of the class."""
    kind = type(thing)
    if not is_users(kind.__module__):
        return ()
    held = attributes_of(thing)
    if isinstance(thing, threading.Thread):  # its own: numbers that the system gives
        held = {name: value for name, value in held.items() if name[0] != "_"}
    return [*_named(held), *reach_code.of_class(kind)]


_PRINTED_TO = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
_LOOKS: tuple[tuple[Any, Look], ...] = (
    (torch.Tensor, _tensor),
    (numpy.ndarray, _array),
    (nn.Module, lambda module: ("", of_module(module))),
    (enum.Enum, _member),
    (_PLAIN, _plain),
    (types.MethodType, lambda method: ("", reach_code.of_method(method))),
    (types.BuiltinMethodType, lambda method: ("", reach_code.of_builtin(method))),
    (types.FunctionType, lambda function: ("", reach_code.of_function(function))),
    (type, lambda kind: ("", reach_code.of_class(kind))),
    (types.ModuleType, lambda module: ("", reach_code.of_module(module))),
    (_SUSPENDED, _generator),
    (_BaseDataLoaderIter, _batches),
)
# Those that a user's class may derive from, with attributes of its own.
_CONTAINERS: tuple[tuple[Any, Look], ...] = (
    (Mapping, _mapping),
    ((list, tuple, collections.deque), _sequence),
    ((set, frozenset, weakref.WeakSet), _set),
    (functools.partial, lambda partial: ("", reach_code.of_partial(partial))),
    (io.IOBase, _stream),
    (torch.optim.Optimizer, _optimizer),
    ((torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler), _stateful),
    (torch.quasirandom.SobolEngine, lambda engine: ("", _named(vars(engine)))),
)
