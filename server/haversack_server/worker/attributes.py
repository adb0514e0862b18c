"""The attributes of an object: those in its dictionary, and those in slots of its classes."""

from typing import Any

_OF_PYTHON = ("__dict__", "__weakref__")


def attributes_of(thing: Any) -> dict[str, Any]:
    """Name what an object holds itself; slots that nothing was assigned to are left out."""
    names = [name for base in type(thing).__mro__ for name in _slots(base)]
    slots = {name: getattr(thing, name) for name in names if hasattr(thing, name)}
    return {**slots, **getattr(thing, "__dict__", {})}


def _slots(base: type) -> list[str]:
    slots: Any = vars(base).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return [_mangled(base, name) for name in names if name not in _OF_PYTHON]


def _mangled(base: type, name: str) -> str:
    """Spell a private name as Python does: with its class, unless that is all underscores."""
    owner = base.__name__.lstrip("_")
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{owner}{name}" if is_private and owner else name
