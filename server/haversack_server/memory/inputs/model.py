"""The one document that describes the model, read to an architecture.

Hugging Face's config.json and Megatron's arguments describe one; every other format has settings
only. Knows nothing of settings.
"""

from dataclasses import replace
from functools import lru_cache

from haversack.errors import InvalidRequestError
from haversack.run import Document, DocumentFormat, TrainingRun
from haversack_server.memory.hf_config import ReadConfig, read_hf_config
from haversack_server.memory.inputs.megatron import read_megatron
from haversack_server.memory.inputs.reader import one_line
from haversack_server.memory.inputs.reading import Source

LONGEST_NAME = 80


def read_model(run: TrainingRun) -> ReadConfig:
    """Read the model of a run's documents; none, and more than one, are errors."""
    found = [
        read
        for index, document in enumerate(run.documents)
        if (read := _read_once(document.format, document.text, document.name, index)) is not None
    ]
    if not found:
        raise InvalidRequestError(
            "none of the documents describes the model; add its config.json", field="documents"
        )
    if len(found) > 1:
        raise InvalidRequestError(
            f"{len(found)} documents describe a model; send the one to estimate", field="documents"
        )
    return found[0]


def hidden_size(run: TrainingRun) -> int | None:
    """Give the hidden size of the model that the documents describe, if there is one."""
    has_model = any(document.format is DocumentFormat.HF_CONFIG for document in run.documents)
    return read_model(run).architecture.hidden if has_model else None


def source_of(document: Document, index: int) -> Source:
    """Name a document for sentences, and the path of its text for violations."""
    # A name is the caller's text: on one line, and short enough for a sentence.
    name = one_line(document.name)[:LONGEST_NAME]
    return Source(name or f"documents[{index}]", f"documents[{index}].text")


@lru_cache(maxsize=64)
def _read_once(kind: DocumentFormat, text: str, name: str, index: int) -> ReadConfig | None:
    """Read a document once for a request and all its variations."""
    source = source_of(Document(format=kind, name=name, text=text), index)
    if kind is DocumentFormat.HF_CONFIG:
        config = read_hf_config(text, name, field=source.field)
        return replace(config, ignored=tuple(map(one_line, config.ignored)))
    if kind is DocumentFormat.MEGATRON_ARGUMENTS:
        read = read_megatron(text, source).architecture
        # What else is to be said of these arguments, ``settle`` says.
        if read is not None:
            return ReadConfig(architecture=read, ignored=(), assumptions=())
    return None
