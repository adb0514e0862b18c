"""A decoder-only transformer as the memory model sees it: sizes, traits, units, parameters.

Knows which tensors a model has, what shape each is, and along which axis tensor parallelism
splits it. Knows nothing of bytes, precisions or kernels, nor of the files sizes are read from.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import prod


class UnitKind(StrEnum):
    """What a unit does in the chain; FSDP gathers one unit at a time."""

    EMBEDDING = "embedding"
    LAYER = "layer"
    HEAD = "head"


class Norm(StrEnum):
    """How a model normalises: LayerNorm, RMSNorm, or RMSNorm with its product kept in fp32."""

    LAYER = "layer"
    RMS = "rms"
    RMS_FLOAT = "rms_float"


class Activation(StrEnum):
    """The feed-forward activation, under Hugging Face's names."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_pytorch_tanh"
    GELU_NEW = "gelu_new"
    RELU = "relu"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight; ``tensor_parallel_axis`` is the axis that tensor parallelism splits, if any.

    A layer's names are relative to the layer, so that equal layers share one tuple; the names of
    the embedding and of the head are those of the whole model.
    """

    name: str
    shape: tuple[int, ...]
    tensor_parallel_axis: int | None = None
    count: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", prod(self.shape))

    def count_on(self, tp: int) -> int:
        """Count the elements on one of ``tp`` ranks; the split axis is padded to a multiple."""
        axis = self.tensor_parallel_axis
        if tp == 1 or axis is None:
            return self.count
        return self.count // self.shape[axis] * -(-self.shape[axis] // tp)


@dataclass(frozen=True, slots=True)
class Unit:
    """One module of the chain: the embedding, a layer, or the head.

    A tied weight is listed once, in the embedding; then the head's ``tied_to`` names it, and the
    head's ``parameters`` do not.
    """

    name: str
    kind: UnitKind
    parameters: tuple[Parameter, ...]
    tied_to: str = ""

    @property
    def parameter_count(self) -> int:
        """Count the unit's own parameters; a tied weight counts where it is listed."""
        return sum(parameter.count for parameter in self.parameters)

    def parameter_count_on(self, tp: int) -> int:
        """Count the unit's own parameters on one of ``tp`` tensor-parallel ranks."""
        return sum(parameter.count_on(tp) for parameter in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and traits of a decoder-only model; ``units`` follow from them, in execution order.

    ``experts`` is 0 for a dense model. Dropout rates are probabilities. ``sliding_window`` and the
    two soft caps are None where the model has none; ``attention_masks`` counts the masks that its
    forward makes where the attention kernel needs any.
    """

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    max_positions: int
    experts: int = 0
    experts_per_token: int = 0
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    norm: Norm = Norm.RMS
    activation: Activation = Activation.SILU
    gated: bool = True
    fused_qkv: bool = False
    learned_positions: bool = False
    softmax_in_float: bool = True
    qk_norm: bool = False
    sandwich_norms: bool = False
    scaled_embedding: bool = False
    query_key_value_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    attention_softcap: float | None = None
    final_softcap: float | None = None
    sliding_window: int | None = None
    attention_masks: int = 1
    name: str = field(default="", compare=False)
    units: tuple[Unit, ...] = field(default=(), compare=False, repr=False)

    @property
    def parameter_count(self) -> int:
        """Count all parameters, tied weights once."""
        layers = [unit for unit in self.units if unit.kind is UnitKind.LAYER]
        others = [unit for unit in self.units if unit.kind is not UnitKind.LAYER]
        in_layers = layers[0].parameter_count * len(layers) if layers else 0
        return in_layers + sum(unit.parameter_count for unit in others)
