"""The text of Megatron-LM arguments, in the forms that users have them in, as one mapping.

A command line (alone, or behind a launcher and a script), a file of such lines, a YAML or JSON
file of arguments (``MODEL_ARGS`` of a recipe, or the nested sections of ``--yaml-cfg``). Keys are
spelled with dashes and without the leading two. Knows nothing of what arguments mean.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from haversack.checks import shortly
from haversack.errors import InvalidRequestError
from haversack.strict_json import parse_object
from haversack_server.memory.inputs.reader import flattened, one_line
from haversack_server.memory.inputs.reading import Source
from haversack_server.memory.inputs.yaml_text import parse_mapping

_OPTION = re.compile(r"--[A-Za-z][\w.-]*")
_SCRIPT = "TRAINING_SCRIPT_PATH"  # the key of a recipe's YAML that names the script
_ARGUMENTS = "MODEL_ARGS"  # the section of a recipe's YAML that holds the arguments


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments by name, those of the launcher apart, and words that belong to none.

    ``script`` is the training script without its folder and ending, such as "pretrain_bert".
    """

    values: dict[str, Any]
    script: str = ""
    launcher: dict[str, Any] = field(default_factory=dict)
    strays: tuple[str, ...] = ()


def parse_arguments(text: str, source: Source) -> Arguments:
    """Read arguments in any of their forms; a fault is an InvalidRequestError."""
    start = text.lstrip()
    if start.startswith("{"):
        return _of_mapping(parse_object(text, field=source.field), source)
    if is_yaml(start):
        return _of_mapping(parse_mapping(text, field=source.field), source)
    return _of_command_line(text, source)


def is_yaml(text: str) -> bool:
    """Tell YAML from a command line: its first line that says something is a key with a colon."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] != "#" and line != "---"), "")
    return re.match(r"[\w\"'-]+\s*:(\s|$)", first) is not None


def _of_mapping(values: Mapping[Any, Any], source: Source) -> Arguments:
    inner = values.get(_ARGUMENTS)
    known = (_ARGUMENTS, _SCRIPT)
    strays = tuple(str(key) for key in values if key not in known) if inner is not None else ()
    if inner is not None and not isinstance(inner, Mapping):
        _refuse(f"{_ARGUMENTS} is {shortly(inner)}; give arguments with values", source)
    found: dict[str, Any] = {}
    for path, value in flattened(inner if inner is not None else values):
        # The sections of --yaml-cfg only group arguments; their names mean nothing by themselves.
        _add(found, _dashed(one_line(path.rpartition(".")[2].strip('"'))), value, source)
    return Arguments(found, script=_named(str(values.get(_SCRIPT, ""))), strays=strays)


def _of_command_line(text: str, source: Source) -> Arguments:
    try:
        words = shlex.split(re.sub(r"\\\r?\n", " ", text), comments=True)
    except ValueError as wrong:
        _refuse(f"the command line cannot be read: {wrong}", source)
    script = next((place for place, word in enumerate(words) if word.endswith(".py")), None)
    launcher = _pairs(words[:script], source) if script is not None else Arguments({})
    own = _pairs(words[script + 1 :] if script is not None else words, source)
    name = _named(words[script]) if script is not None else ""
    return Arguments(own.values, name, launcher.values, own.strays)


def _named(script: str) -> str:
    return script.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _pairs(words: list[str], source: Source) -> Arguments:
    """Pair options with the words behind them: none is true, one is the value, more are a list."""
    found: dict[str, Any] = {}
    strays: list[str] = []
    place = 0
    while place < len(words):
        name, equals, value = words[place].partition("=")
        place += 1
        if not _OPTION.fullmatch(name):
            strays.append(words[place - 1])
            continue
        behind = [value] if equals else []
        while not equals and place < len(words) and not words[place].startswith("--"):
            behind.append(words[place])
            place += 1
        single = behind[0] if behind else True
        _add(found, _dashed(name), behind if len(behind) > 1 else single, source)
    return Arguments(found, strays=tuple(strays))


def _add(found: dict[str, Any], name: str, value: Any, source: Source) -> None:
    if name in found and found[name] != value:
        _refuse(
            f"--{name[:60]} stands twice, as {shortly(found[name])} and as {shortly(value)}; "
            "keep one",
            source,
        )
    found[name] = value


def _dashed(name: str) -> str:
    return name.removeprefix("--").replace("_", "-")


def _refuse(sentence: str, source: Source) -> NoReturn:
    raise InvalidRequestError(f"{source.name}: {sentence}", field=source.field)
