"""A transformer as the memory model sees it: sizes, traits, units, parameters.

Knows which tensors a model has, what shape each is, and along which axis tensor parallelism
splits it. Knows nothing of bytes, precisions or kernels, nor of the files sizes are read from.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod

from haversack_server.memory.traits import (
    PLAIN_ROUTING,
    Activation,
    Head,
    Latent,
    Norm,
    Projection,
    QueryKeyNorm,
    Residual,
    Rotary,
    Routing,
    Stack,
)
from haversack_server.memory.tuning import Tuning

__all__ = ["Activation", "Architecture", "Norm", "Parameter", "Unit", "UnitKind"]


class UnitKind(StrEnum):
    """What a unit does in the chain; FSDP gathers one unit at a time."""

    EMBEDDING = "embedding"
    LAYER = "layer"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight; ``tensor_parallel_axis`` is the axis that tensor parallelism splits, if any.

    ``expert``: its first dimension counts experts, which expert parallelism splits.
    ``frozen_bytes``: how many bytes it is stored in if it does not train; None if it does.
    A layer's names are relative to the layer, so that equal layers share one tuple; the names of
    the embedding and of the head are those of the whole model.
    """

    name: str
    shape: tuple[int, ...]
    tensor_parallel_axis: int | None = None
    expert: bool = False
    frozen_bytes: int | None = None
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
    """One module of the chain: an embedding, a layer, or the head.

    A tied weight is listed once, in the embedding; then the head's ``tied_to`` names it, and the
    head's ``parameters`` do not. ``shares`` names a weight of another unit that this one runs
    too, beside its own: on another pipeline stage it is a replica. ``variant`` describes a layer
    that differs from what the model's own traits say, such as a dense layer of a model with
    experts; None where it does not.
    """

    name: str
    kind: UnitKind
    parameters: tuple[Parameter, ...]
    tied_to: str = ""
    shares: str = ""
    variant: "Architecture | None" = None

    @property
    def parameter_count(self) -> int:
        """Count the unit's own parameters; a tied weight counts where it is listed."""
        return sum(parameter.count for parameter in self.parameters)

    def parameter_count_on(self, tp: int) -> int:
        """Count the unit's own parameters on one of ``tp`` tensor-parallel ranks."""
        return sum(parameter.count_on(tp) for parameter in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and traits of a model; ``units`` follow from them, in execution order.

    ``experts`` is 0 for a dense model; ``dense_layers`` of one with experts have none, and a
    feed-forward size of ``dense_ffn``. ``plain_layers`` do not turn queries and keys. Dropout
    rates are probabilities; ``ffn_dropout`` is that
    within the feed-forward part. ``sliding_window`` and the two soft caps are None where the model
    has none; ``attention_masks`` counts the masks that its forward makes where the attention kernel
    needs any. ``branches_held``, ``norms_held`` and ``parts_held`` say that Python variables of a
    layer name its branches' results, its first norm's, or turned parts of queries and keys to the
    end; ``undropped_held`` that what dropout takes is named until its result is added.
    ``encoder_layers`` is 0 but for an encoder with a decoder, whose ``layers`` counts
    the decoder's. ``prediction_layers`` are those that predict further tokens beside the head, each
    with logits of its own. ``labels`` and the three sizes of images are those of a classifier of
    images.
    ``tuning`` is None where every parameter trains.
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
    dense_ffn: int = 0
    dense_layers: tuple[int, ...] = ()
    plain_layers: tuple[int, ...] = ()
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    ffn_dropout: float = 0.0
    norm: Norm = Norm.RMS
    activation: Activation = Activation.SILU
    residual: Residual = Residual.SEQUENTIAL
    projection: Projection = Projection.SEPARATE
    rotary: Rotary = Rotary.HALVES
    rotary_size: int | None = None
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    head: Head = Head.CAUSAL
    stack: Stack = Stack.DECODER
    latent: Latent | None = None
    routing: Routing = PLAIN_ROUTING
    gated: bool = True
    fused_gate: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    segments: int = 0
    embedding_norm: bool = False
    softmax_in_float: bool = True
    scores_in_float: bool = False
    always_masked: bool = False
    position_bias: bool = False
    attention_sinks: bool = False
    alibi: bool = False
    relative_buckets: int = 0
    sandwich_norms: bool = False
    scaled_embedding: bool = False
    scaled_query: bool = False
    scaled_branches: bool = False
    scaled_logits: bool = False
    causal: bool = True
    query_key_value_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    head_bias: bool = False
    branches_held: bool = False
    norms_held: bool = False
    parts_held: bool = False
    undropped_held: bool = False
    norm_bias: bool = True
    final_norm: bool = True
    attention_softcap: float | None = None
    final_softcap: float | None = None
    sliding_window: int | None = None
    attention_masks: int = 1
    encoder_layers: int = 0
    prediction_layers: int = 0
    labels: int = 0
    image_size: int = 0
    patch_size: int = 0
    channels: int = 0
    tuning: Tuning | None = None
    name: str = field(default="", compare=False)
    units: tuple[Unit, ...] = field(default=(), compare=False, repr=False)

    @property
    def fixed_seq(self) -> int:
        """Count the positions of a sequence where the model fixes them: patches and one more."""
        return (self.image_size // self.patch_size) ** 2 + 1 if self.patch_size else 0

    @property
    def dense(self) -> "Architecture":
        """A layer without experts, as this model has some or as it would have them."""
        return replace(self, experts=0, ffn=self.dense_ffn or self.ffn, units=())

    @property
    def predictor(self) -> "Architecture":
        """The kind of layer that predicts further tokens: that of the last one."""
        return self.dense if self.layers - 1 in self.dense_layers else self

    @property
    def parameter_count(self) -> int:
        """Count all parameters, tied weights once."""
        counted: dict[int, int] = {}
        for unit in self.units:
            key = id(unit.parameters)
            if key not in counted:
                counted[key] = unit.parameter_count
        return sum(counted[id(unit.parameters)] for unit in self.units)
