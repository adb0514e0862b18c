"""What ``haversack diff`` compares: a saved answer, a request to answer now, or a model's config.

Told apart by their keys. Every fault is an InvalidRequestError that names the file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haversack import reading, strict_json
from haversack.errors import InvalidRequestError, Violation
from haversack.estimate import Estimate, EstimateRequest
from haversack.keywords import RunOptions
from haversack.reading import refuse, shown

MOST_BYTES = 64 * 2**20  # a saved answer has every moment of its timeline
_WOULD_DO = (
    "give an answer that estimate --json saved, a request such as "
    '{"model": "config.json", "gpus": 8, "seq": 4096}, or a Hugging Face config.json'
)
_ANSWER_KEYS = {"terms", "phases", "model_version"}
_CONFIG_KEYS = {"model_type", "architectures", "text_config"}
Ask = Callable[[EstimateRequest], Estimate]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: where it comes from, and its answer."""

    name: str
    answer: Estimate


def read_side(path: str, field: str, run: dict[str, Any], ask: Ask) -> Side:
    """Read a file, and ask for its answer where it has none; ``run`` are a config's settings."""
    table = _read(path, field)
    try:
        if table.keys() >= _ANSWER_KEYS:
            return Side(path, _answer(table, field))
        return Side(path, ask(_request(path, table, run)))
    except InvalidRequestError as wrong:
        placed = [
            Violation(each.field, f"{shown(path)}: {each.description}") for each in wrong.violations
        ]
        raise InvalidRequestError(violations=placed) from wrong


def _read(path: str, field: str) -> dict[str, Any]:
    text = reading.read_text(path, field=field, most_bytes=MOST_BYTES, wanted=_WOULD_DO)
    try:
        return strict_json.parse_object(
            text, field=field, example='{"model": "config.json"}', max_bytes=MOST_BYTES
        )
    except InvalidRequestError as wrong:
        refuse(f"{shown(path)}: {wrong.violations[0].description}; {_WOULD_DO}", field)


def _answer(table: dict[str, Any], field: str) -> Estimate:
    """Read a saved answer; one of a newer version may have fields that are not known here."""
    from google.protobuf import json_format

    from haversack import wire

    message = wire.MESSAGES[Estimate]()
    try:
        json_format.ParseDict(table, message, ignore_unknown_fields=True)
    except json_format.ParseError as wrong:
        refuse(f"it is no saved answer: {wrong}", field)
    return wire.from_message(Estimate, message)


def _request(path: str, table: dict[str, Any], run: dict[str, Any]) -> EstimateRequest:
    """Make a request of keywords, of a message, or of a config with the command line's settings."""
    from haversack.requests import estimate_request

    keys = table.keys()
    if keys & _CONFIG_KEYS:
        given: dict[str, Any] = {**run, "model": path}
        return estimate_request(**given, questions=("brief",))
    if keys and keys <= set(RunOptions.__annotations__):
        keywords: Any = table | _beside(Path(path).parent, table)
        return estimate_request(**keywords, questions=("brief",))
    return _message(table)


def _beside(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Find the files that a request names: they lie beside it."""
    found: dict[str, Any] = {}
    if isinstance(model := table.get("model"), str):
        found["model"] = str(folder / model)
    if isinstance(configs := table.get("configs"), list):
        found["configs"] = [_placed(folder, each) for each in configs]
    return found


def _placed(folder: Path, config: Any) -> Any:
    """Place a path, which may have its format in front; another spelling passes as it is."""
    if not isinstance(config, str):
        return config
    form, colon, path = config.rpartition(":")
    return f"{form}{colon}{folder / path}" if (folder / path).is_file() else config


def _message(table: dict[str, Any]) -> EstimateRequest:
    from google.protobuf import json_format

    from haversack import wire

    message = wire.MESSAGES[EstimateRequest]()
    try:
        json_format.ParseDict(table, message)
    except json_format.ParseError as wrong:
        refuse(f"it is neither an answer nor a request: {wrong}; {_WOULD_DO}", "subject")
    return wire.from_message(EstimateRequest, message)
