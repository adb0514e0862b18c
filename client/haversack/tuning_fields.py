"""What of a model trains, from keywords: adapters by rank and module, whole parts, stored weights.

Takes names of transformers' modules beside ours. Knows nothing of other settings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from haversack import checks, spelling
from haversack.finetuning import LAYER_TARGETS, MODULES, Finetuning, Quantizer, StoredWeights
from haversack.keywords import RunOptions
from haversack.reading import refuse

_FIELD = "training.finetuning"
_KEYWORDS = ("lora_rank", "lora_targets", "trained_parts", "quantize", "quantized_by")
_ALL = ("all", "all-linear")


def finetuning_of(run: RunOptions) -> Finetuning | None:
    """Make the field of what trains; None where every weight does."""
    given = run.get("finetuning")
    beside = [keyword for keyword in _KEYWORDS if run.get(keyword) is not None]
    if given is not None and beside:
        refuse(f"finetuning and {beside[0]} both say what trains; give one", _FIELD)
    if given is not None or not beside:
        return given
    return Finetuning(
        rank=checks.plain(run.get("lora_rank")),
        targets=_targets(_names(run.get("lora_targets"), f"{_FIELD}.targets")),
        trained_parts=_names(run.get("trained_parts"), f"{_FIELD}.trained_parts"),
        frozen_weights=spelling.named(
            StoredWeights, run.get("quantize"), f"{_FIELD}.frozen_weights"
        ),
        quantized_by=spelling.named(Quantizer, run.get("quantized_by"), f"{_FIELD}.quantized_by"),
    )


def _names(given: str | Sequence[str] | None, field: str) -> tuple[str, ...]:
    """Take a list of names, or a text in which commas or plus signs part them."""
    if given is None:
        return ()
    if isinstance(given, str):
        given = [name.strip() for name in given.replace("+", ",").split(",")]
    return tuple(spelling.text(name, field) for name in spelling.sequence(given, field))


def _targets(names: tuple[str, ...]) -> tuple[str, ...]:
    """Take the names of modules as our own; the noun refuses what is neither."""
    if any(name in _ALL for name in names):
        return LAYER_TARGETS
    known: Mapping[str, Any] = MODULES
    return tuple(dict.fromkeys(known.get(name, name) for name in names))
