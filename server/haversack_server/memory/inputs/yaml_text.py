"""Reading YAML that a caller wrote, safely and strictly.

Knows limits (size, depth, no aliases, no tags, no duplicate keys) and one sentence for each. The
text is looked over event by event before anything is built of it. Knows nothing of keys' meaning.
"""

from typing import Any, NoReturn

from haversack.checks import shortly
from haversack.errors import InvalidRequestError, MissingExtraError

MAX_BYTES = 1 << 16  # users' files have a few KiB, and without libyaml 64 of them take seconds
MAX_DEPTH = 16


def parse_mapping(text: str, *, field: str) -> dict[Any, Any]:
    """Parse a YAML document that is a mapping; a fault is an InvalidRequestError."""
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_BYTES:
        _refuse(f"the YAML document has {size} bytes; at most {MAX_BYTES} are read", field)
    value = _load(text, field)
    if value is None:
        _refuse("the document is empty; give the text of the file", field)
    if not isinstance(value, dict):
        _refuse(f"the document is a YAML {type(value).__name__}; give keys with values", field)
    return value


def _load(text: str, field: str) -> Any:
    try:
        import yaml
    except ImportError as missing:
        raise MissingExtraError("YAML needs PyYAML; pip install 'haversack[server]'") from missing
    try:
        _look_over(text, field)
        return yaml.load(text, Loader=_strict_loader(field))
    except yaml.MarkedYAMLError as wrong:
        place = wrong.problem_mark or wrong.context_mark
        where = f" in line {place.line + 1}, column {place.column + 1}" if place else ""
        _refuse(f"the document is not YAML: {wrong.problem or wrong.context}{where}", field)
    except (yaml.YAMLError, ValueError, OverflowError) as wrong:
        # Control characters; a date with month 13; a number of thousands of digits.
        _refuse(f"the document is not YAML: {shortly(str(wrong).splitlines()[0])}", field)


def _look_over(text: str, field: str) -> None:
    """Refuse nesting and aliases before they cost anything: a few lines can stand for gigabytes."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_safe_loader()):
        if isinstance(event, yaml.AliasEvent):
            _refuse(f"the alias *{event.anchor} is not read; write the value out", field)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            _refuse(f"the document is nested deeper than {MAX_DEPTH} levels", field)


def _safe_loader() -> Any:
    """Give PyYAML's safe loader, with libyaml's parser where there is one."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _strict_loader(field: str) -> Any:
    """Make a safe loader that refuses a key standing twice; YAML itself takes the last."""
    import yaml

    class Strict(_safe_loader()):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else None
                if name in seen and name is not None:
                    sentence = f"the key {shortly(name)} stands twice in one mapping; keep one"
                    _refuse(sentence, f"{field}.{name[:60]}")
                seen.add(name)
            built: dict[Any, Any] = super().construct_mapping(node, deep)
            return built

    return Strict


def _refuse(sentence: str, field: str) -> NoReturn:
    raise InvalidRequestError(sentence, field=field)
