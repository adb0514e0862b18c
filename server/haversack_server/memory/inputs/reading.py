"""What one document says: settings by the field they fill, a model, and what became of its keys.

Every adapter returns a ``Reading``. Knows nothing of formats, nor of how readings are merged.
"""

from dataclasses import dataclass, replace
from typing import Any

from haversack_server.memory.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Setting:
    """A value for a field of the request, and the key of the document that gave it.

    ``field`` is a path such as "training.microbatch", or one of the facts below, which become
    fields once every document is read.
    """

    field: str
    value: Any
    key: str


# Facts: what a file says that is no field of a request by itself.
GLOBAL_BATCH = "global batch"  # sequences of an optimizer step over all data ranks
TOKENS_PER_MICROBATCH = "tokens per microbatch"  # torchtitan since 2026, on one data rank
MIXED_PRECISION = "mixed precision"  # "bf16", "fp16" or "no": which recipe, the engine decides
ENGINE = "engine"  # "deepspeed", "fsdp1", "fsdp2", "megatron", "ddp"
RECOMPUTE_EVERY = "recompute every"  # n: each n-th layer recomputes, the others save
DEEPSPEED_FILE = "deepspeed file"  # a name; the file itself has to be among the documents


@dataclass(frozen=True, slots=True)
class FromHidden:
    """A figure that Hugging Face fills in for "auto" once the model's hidden size is known."""

    permille: int
    power: int
    words: str

    def value(self, hidden: int) -> int:
        """Work the figure out: a share of a power of the hidden size, rounded down."""
        figure: int = self.permille * hidden**self.power // 1000
        return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a document says.

    ``unmodelled`` are sentences on settings that decide memory and that no term knows: a verdict
    with one of them is UNKNOWN. ``ignored`` are keys that no one knows here, ``silent`` keys that
    are known to change no byte; both as dotted paths.
    """

    settings: tuple[Setting, ...] = ()
    architecture: Architecture | None = None
    unmodelled: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def joined(outer: Reading, inner: Reading, prefix: str) -> Reading:
    """Join what a document says with what a section of it says in another format."""
    keyed = tuple(replace(each, key=f"{prefix}.{each.key}") for each in inner.settings)
    return replace(
        outer,
        settings=(*outer.settings, *keyed),
        unmodelled=(*outer.unmodelled, *inner.unmodelled),
        assumptions=(*outer.assumptions, *inner.assumptions),
        ignored=(*outer.ignored, *(f"{prefix}.{key}" for key in inner.ignored)),
        silent=(*outer.silent, *(f"{prefix}.{key}" for key in inner.silent)),
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Which document it is: its name in sentences, the path of its text in violations."""

    name: str
    field: str
