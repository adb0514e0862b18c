"""The documents of a run: the model's configuration, and the user's own files beside it.

Knows how callers give them: a path, the parsed mapping, the text, with the format in front where
the content does not tell it. Knows nothing of what they mean, which the server reads.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from haversack import formats, reading, spelling
from haversack.keywords import RunOptions
from haversack.reading import refuse
from haversack.run import LARGEST_DOCUMENT, Document, DocumentFormat

_WHICH_MODEL = "give a Hugging Face config.json or its folder (nothing is downloaded)"
_WHICH_FILE = "give a configuration file, with its format in front if need be: deepspeed:ds.json"


def documents_of(run: RunOptions) -> tuple[Document, ...]:
    """Make the documents of a run: its model first, then its files, then its command line."""
    model = run.get("model")
    found = [] if model is None else [_model(model)]
    for given in _configs(run):
        found.append(document(given, field=f"documents[{len(found)}]"))
    launch = run.get("launch")
    if launch is not None:
        found.append(_launch(launch, f"documents[{len(found)}].text"))
    return tuple(found)


def document(
    given: str | PathLike[str] | Mapping[str, Any] | Document,
    kind: DocumentFormat | None = None,
    *,
    field: str = "documents[0]",
) -> Document:
    """Make a document of a path, a parsed mapping or a text; its format is detected if not given.

    A string with a line break, or that starts with a brace, is the text itself; any other is a
    path, with the name of a format before a colon where the content does not tell it.
    """
    if isinstance(given, Document):
        return given
    place = f"{field}.text"
    if isinstance(given, Mapping):
        return _of_text(json_of(given, place), "", kind, "", place)
    if not isinstance(given, str | PathLike):
        refuse(f"{type(given).__name__} is no path; {_WHICH_FILE}", place)
    if isinstance(given, str) and ("\n" in given or given.lstrip().startswith("{")):
        return _of_text(given, "", kind, "", place)
    word, path = _parted(str(given))
    text = reading.read_text(path, field=place, most_bytes=LARGEST_DOCUMENT, wanted=_WHICH_FILE)
    return _of_text(text, Path(path).name, kind, word, place)


def _of_text(text: str, name: str, kind: DocumentFormat | None, word: str, field: str) -> Document:
    if kind is None and word:
        kind = formats.named(word, text, field)
    if kind is None:
        kind = formats.detected(text, name or "the text", field)
    return Document(format=kind, name=name, text=text)


def _parted(given: str) -> tuple[str, str]:
    """Part the name of a format from a path; a colon in a path that exists belongs to the path."""
    word, colon, path = given.partition(":")
    if colon and word.strip().lower() in formats.NAMES:
        return word, path
    return "", given


def _configs(run: RunOptions) -> tuple[Any, ...]:
    given = run.get("configs")
    if given is None:
        return ()
    single = isinstance(given, str | PathLike | Mapping | Document)
    return (given,) if single else spelling.sequence(given, "documents")


def _launch(given: object, field: str) -> Document:
    """Make a document of a command line, of Megatron-LM or with TrainingArguments."""
    text = spelling.text(given, field)
    kind = formats.told(text)
    lines = (DocumentFormat.MEGATRON_ARGUMENTS, DocumentFormat.HF_TRAINING_ARGUMENTS)
    if kind is None or kind not in lines:
        refuse(
            "the command line has neither Megatron-LM's options nor TrainingArguments; "
            "give the settings as a file",
            field,
        )
    return Document(format=kind, name="command line", text=text)


def _model(model: object) -> Document:
    field = "documents[0].text"
    if isinstance(model, Mapping):
        name, text = "config.json", json_of(model, field)
    else:
        path = _model_path(model, field)
        name = path.name
        text = reading.read_text(
            path, field=field, most_bytes=LARGEST_DOCUMENT, wanted=_WHICH_MODEL
        )
    return Document(format=DocumentFormat.HF_CONFIG, name=name, text=text)


def _model_path(model: object, field: str) -> Path:
    """Find the file: a folder's config.json, or the path as it is."""
    if not isinstance(model, str | PathLike):
        refuse(f"{type(model).__name__} is no path; {_WHICH_MODEL}", field)
    if not str(model):
        refuse(f"the path is empty; {_WHICH_MODEL}", field)
    try:
        path = Path(model)
        return path / "config.json" if path.is_dir() else path
    except (OSError, TypeError) as wrong:  # longer than the system takes, or a path of bytes
        refuse(f"not a path: {getattr(wrong, 'strerror', None) or wrong}; {_WHICH_MODEL}", field)


def json_of(value: Mapping[str, Any], field: str) -> str:
    """Write a mapping as JSON, or say why it cannot be."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as wrong:
        refuse(f"it cannot be written as JSON: {wrong}; give plain values", field)
