"""The state of objects of Python's own library, of those kinds that models count and keep with.

All other objects of installed libraries are not looked into: most of what they hold is no state of
a model, and some of it differs from run to run.
"""

import argparse
import array
import collections
import contextvars
import ctypes
import datetime
import functools
import logging
import numbers
import queue
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy
from torch.distributions import Distribution

from haversack_server.worker.reach_code import of_descriptor

Children = Iterable[tuple[str, Any]]
_CACHE = type(functools.lru_cache(lambda: None))
_C_NUMBER = ctypes._SimpleCData
_OF_THREADS = (threading.Semaphore, threading.Event, threading.Condition, threading.Barrier)
_ITERATORS = ("builtins", "itertools")
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_PRINTED = (numbers.Number, numpy.generic, uuid.UUID, *_DATES)


def look(thing: Any) -> tuple[str, Children]:
    """Spell the state of an object of a known kind; of any other, nothing."""
    for kinds, looks in _LOOKS:
        if isinstance(thing, kinds):
            return looks(thing)
    kind = type(thing)
    if kind.__module__ in _ITERATORS and hasattr(kind, "__next__"):
        # Iterators say in their reduction how far they are.
        _, *state = thing.__reduce__()
        return kind.__name__, [("[]", state)]
    return "", ()


def _cache(cache: Any) -> tuple[str, Children]:
    # How often it was asked is left out: a replay asks once more, and gets what its forward got.
    return f"cache of {cache.cache_info().currsize}", [(".__wrapped__", cache.__wrapped__)]


def _logger(logger: logging.Logger) -> tuple[str, Children]:
    parent = [(".parent", logger.parent)] if logger.propagate and logger.parent else []
    return f"logger at level {logger.level}", [(".handlers", logger.handlers), *parent]


def _attributes(thing: Any) -> tuple[str, Children]:
    return type(thing).__name__, [(f".{name}", value) for name, value in vars(thing).items()]


def _queue(thing: queue.Queue[Any]) -> tuple[str, Children]:
    return f"queue of {len(thing.queue)}", [(".queue", thing.queue)]


def _simple_queue(thing: Any) -> tuple[str, Children]:
    return f"queue of {thing.qsize()}", ()


def _fields(thing: Any) -> tuple[str, Children]:
    fields = [field for base in type(thing).__mro__ for field in vars(base).get("_fields_", ())]
    return "", [(f".{name}", getattr(thing, name)) for name, *_ in fields]


def _number(thing: Any) -> tuple[str, Children]:
    # A pointer says where, and not what: addresses are no state.
    is_pointer = isinstance(thing, ctypes.c_void_p | ctypes.py_object)
    return "", () if is_pointer else [(".value", thing.value)]


def _pointed_at(pointer: Any) -> tuple[str, Children]:
    # What the pointer itself keeps alive; what is anywhere else may be gone.
    return "", [(f"[{label}]", held) for label, held in (pointer._objects or {}).items()]


def _printed(thing: Any) -> tuple[str, Children]:
    return repr(thing), ()


_LOOKS: tuple[tuple[Any, Callable[[Any], tuple[str, Children]]], ...] = (
    (_PRINTED, _printed),
    ((bytearray, array.array), lambda thing: ("", [("[]", bytes(thing))])),
    ((types.SimpleNamespace, argparse.Namespace, threading.local, Distribution), _attributes),
    (logging.Handler, _attributes),
    (logging.Logger, _logger),
    (collections.UserList, lambda thing: ("", [(".data", thing.data)])),
    (queue.Queue, _queue),
    (queue.SimpleQueue, _simple_queue),
    ((ctypes.Structure, ctypes.Union), _fields),
    (ctypes.Array, lambda thing: ("", [("[]", list(thing))])),
    (_C_NUMBER, _number),
    (ctypes._Pointer, _pointed_at),
    (_OF_THREADS, _attributes),
    (memoryview, lambda thing: ("", [("[]", thing.tobytes())])),
    (contextvars.ContextVar, lambda thing: ("", [(".get()", thing.get(None))])),
    (weakref.ref, lambda thing: ("", [(".referent", thing())])),
    (_CACHE, _cache),
    (functools.cached_property, lambda thing: ("", [(".func", thing.func)])),
    ((staticmethod, classmethod, property), lambda thing: ("", of_descriptor(thing))),
)
