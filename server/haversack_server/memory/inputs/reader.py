"""Takes typed values out of a parsed document, and keeps account of every key.

A document is flattened to dotted paths. What an adapter asks for is read; what it names as quiet
changes no byte; the rest is ignored, and listed. Knows no format.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from haversack import checks
from haversack.errors import Violation, check
from haversack_server.memory.inputs.reading import Reading, Setting, Source

Value = TypeVar("Value")

LARGEST = 2**53  # above it a figure written as 1e16 is no longer the integer that it says
AUTO = "auto"
_FIGURE = re.compile(r"[+-]?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})([eE][+-]?\d{1,3})?")
_YES_OR_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LONGEST_KEY = 80  # characters of it in a sentence


@dataclass(frozen=True, slots=True)
class Given:
    """A key that a document has, with its value."""

    key: str
    value: Any


class Reader:
    """The keys of one document; every question marks the keys that it asks for as read."""

    def __init__(self, values: Mapping[Any, Any], source: Source) -> None:
        self.source = source
        self._flat = dict(flattened(values))
        self._sections = {
            key[:place] for key in self._flat for place, letter in enumerate(key) if letter == "."
        }
        self._read: set[str] = set()
        self._violations: list[Violation] = []
        self._settings: list[Setting] = []
        self._unmodelled: list[str] = []
        self._assumptions: list[str] = []

    def given(self, *keys: str) -> Given | None:
        """Find the first of several spellings that has a value; null counts as not given."""
        self._read.update(keys)
        for key in keys:
            if key in self._sections:
                self.refuse(key, "is an object; give a value")
        found = [Given(key, self._flat[key]) for key in keys if self._flat.get(key) is not None]
        for other in found[1:]:
            if other.value != found[0].value:
                first = f"{found[0].key} is {checks.shortly(found[0].value)}"
                self.refuse(other.key, f"is {checks.shortly(other.value)}, but {first}")
        return found[0] if found else None

    def whole(self, *keys: str, least: int = 0, most: int = LARGEST) -> int | None:
        """Read a whole number; 5e8 is one, and so is "8"."""
        given = self.given(*keys)
        if given is None or self._is_auto(given):
            return None
        number = whole_number(given.value)
        if number is None or not least <= number <= most:
            wanted = f"give a whole number from {least} to {most}"
            self.refuse(given.key, f"is {checks.shortly(given.value)}; {wanted}")
            return None
        return number

    def number(self, *keys: str, most: float = 1e6) -> float | None:
        """Read a number from 0 to ``most``."""
        given = self.given(*keys)
        if given is None or self._is_auto(given):
            return None
        number = _number(given.value)
        if number is None or not 0 <= number <= most:
            wanted = f"give a number from 0 to {most:g}"
            self.refuse(given.key, f"is {checks.shortly(given.value)}; {wanted}")
            return None
        return number

    def flag(self, *keys: str) -> bool | None:
        """Read true or false, as such or in words."""
        given = self.given(*keys)
        if given is None or self._is_auto(given):
            return None
        value = given.value
        if isinstance(value, str):
            value = _YES_OR_NO.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            self.refuse(given.key, f"is {checks.shortly(value)}; give true or false")
            return None
        return value

    def word(self, known: Mapping[str, Value], *keys: str) -> Value | None:
        """Read one of some words, in upper or lower case; a number stands for itself."""
        given = self.given(*keys)
        if given is None or self._is_auto(given):
            return None
        written = str(given.value).strip().lower() if _is_scalar(given.value) else None
        if written is None or written not in known:
            choices = ", ".join(known)
            self.refuse(given.key, f"is {checks.shortly(given.value)}; use one of {choices}")
            return None
        return known[written]

    def is_auto(self, *keys: str) -> bool:
        """Tell whether a key says "auto"."""
        given = self.given(*keys)
        return given is not None and self._is_auto(given)

    def section(self, key: str) -> bool:
        """Tell whether a section is there; a value in its place is refused."""
        if key in self._flat:
            self._read.add(key)
            value = self._flat[key]
            if value is not None and value != {}:
                self.refuse(key, f"is {checks.shortly(value)}; give an object")
            return value is not None
        return key in self._sections

    def set(self, field: str, value: Any, key: str) -> None:
        """Note a setting; None sets nothing."""
        if value is not None:
            held = one_line(value) if isinstance(value, str) else value
            self._settings.append(Setting(field, held, key))

    def set_whole(self, field: str, *keys: str, least: int = 1, most: int = 2**31) -> None:
        """Read a whole number into a field."""
        value = self.whole(*keys, least=least, most=most)
        if value is not None:
            self.set(field, value, self._key(*keys))

    def set_word(self, field: str, known: Mapping[str, Any], *keys: str) -> None:
        """Read one of some words into a field; a word that stands for None sets nothing."""
        value = self.word(known, *keys)
        if value is not None:
            self.set(field, value, self._key(*keys))

    def unmodelled(self, key: str, meaning: str) -> None:
        """Note that a setting decides memory and is not modelled."""
        value = checks.shortly(self._flat.get(key)).strip("'\"")
        shown = key if key in self._sections else f"{key}={value}"
        sentence = f"{self.source.name}: {shown}: {meaning}: not modelled yet"
        self._unmodelled.append(one_line(sentence))

    def unmodelled_if_on(self, meanings: Mapping[str, str]) -> None:
        """Note each of some keys that is there and is not null, false, 0, "none" or empty."""
        for key, meaning in meanings.items():
            if key in self._sections:
                self._read.update(each for each in self._flat if each.startswith(f"{key}."))
                self.unmodelled(key, meaning)
                continue
            given = self.given(key)
            if given is not None and not _is_off(given.value):
                self.unmodelled(key, meaning)

    def assume(self, sentence: str) -> None:
        """Note an assumption, with the document's name."""
        self._assumptions.append(one_line(f"{self.source.name}: {sentence}"))

    def refuse(self, key: str, fault: str) -> None:
        """Note what is wrong with a key, as the rest of the sentence that it begins."""
        short = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
        sentence = f"{self.source.name}: {short} {fault}"
        self._violations.append(Violation(f"{self.source.field}.{short}", sentence))

    def has(self, *keys: str) -> bool:
        """Tell whether any of some keys has a value; they count as read only if asked for too."""
        return any(self._flat.get(key) is not None for key in keys)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The settings noted so far that are not modelled."""
        return tuple(self._unmodelled)

    def require(self, key: str) -> None:
        """Refuse a document that lacks a key, unless what it gives is refused already."""
        if self._flat.get(key) is None:
            self.refuse(key, "is missing; give it")

    def result(self, quiet: tuple[str, ...] = (), **more: Any) -> Reading:
        """Raise what is wrong, or give the reading; ``quiet`` are patterns of harmless keys."""
        check(self._violations)
        left = [key for key in self._flat if key not in self._read]
        silent = {key for key in left if any(fnmatchcase(key, each) for each in quiet)}
        return Reading(
            settings=tuple(self._settings),
            unmodelled=tuple(self._unmodelled),
            assumptions=tuple(self._assumptions),
            ignored=tuple(key for key in left if key not in silent),
            silent=tuple(key for key in left if key in silent),
            **more,
        )

    def _key(self, *keys: str) -> str:
        given = self.given(*keys)
        return given.key if given else keys[0]

    @staticmethod
    def _is_auto(given: Given) -> bool:
        return isinstance(given.value, str) and given.value.strip().lower() == AUTO


def flattened(values: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted paths with their values; lists and empty objects are values."""
    for key, value in values.items():
        name = one_line(str(key))
        here = f'"{name}"' if "." in name else name  # else a.b would be two things
        here = f"{path}.{here}" if path else here
        if isinstance(value, Mapping) and value:
            yield from flattened(value, here)
        else:
            yield here, value


def one_line(text: str) -> str:
    """Write a caller's text on one line that UTF-8 takes; JSON may hold half characters."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if plain.isprintable() else " ".join(plain.split())


def whole_number(value: Any) -> int | None:
    """Take an integer, a float that is one, or a text that says one; else None."""
    if type(value) is int:
        return value
    number = _number(value)
    if number is None or not abs(number) <= LARGEST or number != int(number):
        return None
    return int(number)


def _number(value: Any) -> float | None:
    if isinstance(value, str) and _FIGURE.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_off(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("", "none", "null", "no", "false", "0")
    return not value
