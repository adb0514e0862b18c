"""What of a model trains: low-rank adapters, whole parts, and how frozen weights are stored."""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check

TARGETS = ("query", "key", "value", "output", "gate", "up", "down", "head")
LAYER_TARGETS = TARGETS[:-1]
# What transformers calls the modules of most families.
MODULES = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "lm_head": "head",
}
PARTS = ("embedding", "norms", "head")
_STORED_BY_QUANTIZER = (
    "torchtune's quantizers store frozen weights as nf4-double; give frozen_weights NF4_DOUBLE "
    "(--quantize nf4-double), or leave quantized_by out"
)


class StoredWeights(enum.IntEnum):
    """How frozen weights of a layer's products are stored."""

    UNSPECIFIED = 0
    COMPUTE = 1
    NF4 = 2
    NF4_DOUBLE = 3
    INT8 = 4


class Quantizer(enum.IntEnum):
    """What quantizes frozen weights while a model is made and loaded, by its date."""

    UNSPECIFIED = 0
    TORCHTUNE_2024_04 = 1
    TORCHTUNE_2024_08 = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Finetuning:
    """A run in which most weights are frozen; without a rank no adapters are added."""

    rank: int | None = None
    targets: tuple[str, ...] = ()
    adapter_dropout: float | None = None
    adapter_in_fp32: bool | None = None
    trained_parts: tuple[str, ...] = ()
    frozen_weights: StoredWeights = StoredWeights.UNSPECIFIED
    head_quantized: bool | None = None
    quantized_by: Quantizer = Quantizer.UNSPECIFIED

    def __post_init__(self) -> None:
        path = "training.finetuning"
        found = checks.optional_integer(f"{path}.rank", self.rank, least=1, most=2**20)
        found += _named(f"{path}.targets", self.targets, TARGETS)
        found += _named(f"{path}.trained_parts", self.trained_parts, PARTS)
        dropout = self.adapter_dropout
        if dropout is not None and not 0 <= dropout < 1:
            sentence = f"is {checks.shortly(dropout)}; give a probability, less than 1"
            found.append(Violation(f"{path}.adapter_dropout", sentence))
        if self.targets and self.rank is None:
            found.append(Violation(f"{path}.rank", "adapters on targets need a rank, such as 16"))
        if self.rank is None and not self.trained_parts:
            sentence = "nothing would train: give a rank for adapters, or trained_parts"
            found.append(Violation(f"{path}.rank", sentence))
        if self.quantized_by and self.frozen_weights is not StoredWeights.NF4_DOUBLE:
            found.append(Violation(f"{path}.quantized_by", _STORED_BY_QUANTIZER))
        check(found)


def _named(path: str, given: tuple[str, ...], known: tuple[str, ...]) -> list[Violation]:
    return [
        Violation(f"{path}[{index}]", f"{checks.shortly(name)} is none of {', '.join(known)}")
        for index, name in enumerate(given)
        if name not in known
    ]
