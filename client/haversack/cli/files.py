"""The JSON files that commands read: units, candidates.

Every fault is an InvalidRequestError that names the file. What the keys mean is for the builders.
"""

from typing import Any

from haversack import reading, strict_json
from haversack.checks import shortly
from haversack.errors import InvalidRequestError, Violation
from haversack.reading import shown

MOST_BYTES = 64 * 2**20  # a million candidates with names

UNITS = '{"units": [{"name": "a", "parameter_count": 1000}]}'
CANDIDATES = '{"size_bytes": [3, 2, 2], "gain": [5, 3, 3]}'


def read_units(path: str, field: str) -> list[Any]:
    """Read the list under the key ``units``."""
    table = _read_object(path, field=field, example=UNITS)
    unknown = [key for key in table if key != "units"]
    if unknown:
        reading.refuse(f"{shown(path)}: unknown key {shortly(unknown[0])}; {UNITS} would do", field)
    if "units" not in table or not isinstance(table["units"], list):
        reading.refuse(f"{shown(path)}: no list of units; {UNITS} would do", field)
    units: list[Any] = table["units"]
    return units


def read_candidates(path: str) -> dict[str, Any]:
    """Read the columns of candidates, in either form; ``mirrored`` tells which."""
    return _read_object(path, field="candidates", example=CANDIDATES)


def mirrored(columns: dict[str, Any]) -> bool:
    """Tell whether columns are of the mirror form: freed bytes and added time."""
    return "freed_bytes" in columns or "added_ns" in columns


def _read_object(path: str, *, field: str, example: str) -> dict[str, Any]:
    wanted = f"give a JSON file such as {example}"
    text = reading.read_text(path, field=field, most_bytes=MOST_BYTES, wanted=wanted)
    try:
        return strict_json.parse_object(text, field=field, example=example, max_bytes=MOST_BYTES)
    except InvalidRequestError as wrong:
        placed = [
            Violation(field, f"{shown(path)}: {each.description}") for each in wrong.violations
        ]
        raise InvalidRequestError(violations=placed) from wrong
