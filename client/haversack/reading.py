"""What callers wrote by hand, read strictly: text files of at most so many bytes, and JSON.

Knows one sentence for each fault. Knows nothing of what the text means.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from haversack import units
from haversack.errors import InvalidRequestError


def read_text(path: str | PathLike[str], *, field: str, most_bytes: int, wanted: str) -> str:
    """Read a UTF-8 file of at most ``most_bytes``; ``wanted`` says what would do instead."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(most_bytes + 1)
        if len(raw) > most_bytes:
            refuse(f"{path} is larger than {units.format_bytes(most_bytes)}; {wanted}", field)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse(f"{path} is not text; {wanted}", field)
    except OSError as wrong:
        refuse(f"{path}: {_reason(wrong)}; {wanted}", field)
    except ValueError:  # a path with a null character
        refuse(f"{str(path)!r} is not a path; {wanted}", field)


def parse_json(text: str, *, field: str) -> Any:
    """Parse one JSON value; a key given twice and a NaN are faults."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                refuse(f"the key {key!r} stands twice in one object; keep one", field)
            seen[key] = value
        return seen

    def constant(name: str) -> NoReturn:
        refuse(f"{name} is no JSON number; give a finite one", field)

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except json.JSONDecodeError as wrong:
        place = f"line {wrong.lineno}, column {wrong.colno}"
        refuse(f"not JSON: {wrong.msg.lower()} in {place}; mend it there", field)
    except RecursionError:
        refuse("nested too deeply; give a flat object", field)
    except ValueError:  # Python's own limit on the digits of an integer
        refuse("an integer of thousands of digits; give one below 2^63", field)


def parse_object(text: str, *, field: str, example: str) -> dict[str, Any]:
    """Parse one JSON object; ``example`` shows in the sentence what would do."""
    value = parse_json(text, field=field)
    if not isinstance(value, dict):
        refuse(f"{_kind(value)} is not an object such as {example}", field)
    return value


def refuse(sentence: str, field: str) -> NoReturn:
    """Raise the sentence at the field."""
    raise InvalidRequestError(sentence, field=field)


def _reason(wrong: OSError) -> str:
    return (wrong.strerror or type(wrong).__name__).lower()


def _kind(value: Any) -> str:
    named = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return named.get(type(value), "a number")
