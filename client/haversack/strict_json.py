"""Reading JSON that a caller wrote, safely and strictly.

Knows limits (size, depth, duplicate keys, numbers that are none) and one sentence for each.
Knows nothing of files, nor of what the keys mean.
"""

import json
import math
from typing import Any, NoReturn

from haversack.errors import InvalidRequestError

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_KEY = 60  # of a key in a sentence


def parse_object(
    text: str, *, field: str, example: str = "{...}", max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Parse one JSON object of at most ``max_bytes``; a fault is an InvalidRequestError.

    ``example`` shows in the sentence what would do instead of something that is no object.
    """
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > max_bytes:
        _refuse(f"the document has {size} bytes; at most {max_bytes} are read", field)
    value = _load(text, field)
    if not isinstance(value, dict):
        _refuse(f"the document is a JSON {_kind(value)}; give an object, {example}", field)
    _check_depth(value, field)
    return value


def _load(text: str, field: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, field),
            parse_float=lambda number: _finite(number, field),
            parse_constant=lambda name: _refuse(
                f"the document holds {name}, which is no JSON number; give a finite one", field
            ),
        )
    except json.JSONDecodeError as error:
        _refuse(
            f"the document is not JSON: {error.msg} in line {error.lineno}, column {error.colno};"
            " give the text of the file as it is",
            field,
        )
    except RecursionError:
        _refuse(_too_deep(), field)
    except ValueError:  # Python's own limit on the digits of an integer
        _refuse("the document holds an integer of thousands of digits; give a smaller one", field)


def _finite(number: str, field: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        _refuse(f"the document holds {number}, which is no finite number; give one", field)
    return value


def _unique(pairs: list[tuple[str, Any]], field: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            short = key if len(key) <= MAX_KEY else f"{key[:MAX_KEY]}..."
            _refuse(f"the key {short!r} stands twice in one object; keep one", f"{field}.{short}")
        result[key] = value
    return result


def _check_depth(value: Any, field: str) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    _refuse(_too_deep(), field)


def _children(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _too_deep() -> str:
    return f"the document is nested deeper than {MAX_DEPTH} levels; give a flat configuration"


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _refuse(sentence: str, field: str) -> NoReturn:
    raise InvalidRequestError(sentence, field=field)
