"""A model whose frozen weights are quantized while it is made and loaded, by torchtune.

One layer is made, each weight in 16 bits and then converted; it is copied for every layer, where a
converted weight's copy is made from what it was before (``clone`` is ``to_nf4`` of
``get_original_weight``); then a state dict is loaded, each weight moved to the device and converted
beside the one that it replaces. All of it runs through a caching allocator, since what it reserves
is never given back: a run's reserved bytes are at least those of its loading.

Sources: pytorch/torchtune, torchtune/models/llama2/_component_builders.py (``lora_llama2``: a
layer, the embedding, the head, then ``TransformerDecoder``, whose ``_get_clones`` copies the
layer), modules/peft/lora.py (``_create_weight_and_bias``),
modules/low_precision/_register_nf4_dispatch_ops.py (``clone``, ``inplace_copy``),
recipes/lora_finetune_single_device.py (``_setup_model``). Knows units of a model, and none of its
steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from haversack.finetuning import Quantizer
from haversack_server.memory.architecture import Parameter, Unit, UnitKind
from haversack_server.memory.nf4_conversion import CHUNK, WIDTH, Conversion, original, to_nf4
from haversack_server.memory.replayed_memory import Memory, Tensor

CONVERSIONS: Mapping[Quantizer, Conversion] = MappingProxyType(
    {
        Quantizer.TORCHTUNE_2024_04: Conversion(),
        Quantizer.TORCHTUNE_2024_08: Conversion(chunk=CHUNK, own=True),
    }
)
QUANTIZING = "quantizing"  # the phase
HELD_FROM_LOADING = (
    "reserved bytes: never less than loading the model took, by a replay of its requests through a "
    "model of PyTorch's caching allocator"
)
KEPT = 32  # models whose loading is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The height of making and loading a model, and what the allocator holds from then on."""

    quantizer: Quantizer
    peak_bytes: int
    reserved_bytes: int
    largest: int

    @property
    def formula(self) -> str:
        """Say what is beside the weights at the height."""
        beside = "a layer that all others are copies of, and for each element of the largest weight"
        if CONVERSIONS[self.quantizer].chunk is None:
            return f"{beside} 68 bytes: itself and scaled (4), two tables of 16 differences (64)"
        return f"{beside} 14 bytes, to copy it: places of 64 bits (8), values, scaled, itself (6)"


class _Weight(NamedTuple):
    """One parameter of a unit; what is not quantized is stored in ``size_bytes``."""

    elements: int
    size_bytes: int
    quantized: bool


_Weights = tuple[_Weight, ...]


def loading_of(units: Sequence[Unit], quantizer: Quantizer, trained_bytes: int) -> Loading | None:
    """Make and load a model; None where nothing is said of what quantizes its weights.

    ``trained_bytes`` are those of an element of what trains.
    """
    conversion = CONVERSIONS.get(quantizer)
    if conversion is None:
        return None
    known: dict[int, _Weights] = {}
    for unit in units:
        if id(unit.parameters) not in known:
            known[id(unit.parameters)] = _weights(unit, conversion, trained_bytes)
    layers, others = list[_Weights](), list[_Weights]()
    for unit in units:
        into = layers if unit.kind is UnitKind.LAYER else others
        into.append(known[id(unit.parameters)])
    memory = _loaded(tuple(layers), tuple(others), conversion)
    return Loading(
        quantizer=quantizer,
        peak_bytes=memory[0],
        reserved_bytes=memory[1],
        largest=max(
            (each.elements for layer in layers for each in layer if each.quantized), default=0
        ),
    )


def _weights(unit: Unit, conversion: Conversion, trained_bytes: int) -> _Weights:
    return tuple(_weight(each, conversion, trained_bytes) for each in unit.parameters)


def _weight(parameter: Parameter, conversion: Conversion, trained_bytes: int) -> _Weight:
    size = parameter.frozen_bytes
    if size is None:
        return _Weight(parameter.count, parameter.count * trained_bytes, quantized=False)
    quantized = size < parameter.count * WIDTH
    return _Weight(parameter.count, size, quantized)


@lru_cache(maxsize=KEPT)
def _loaded(
    layers: tuple[_Weights, ...], others: tuple[_Weights, ...], conversion: Conversion
) -> tuple[int, int]:
    """Give the most allocated bytes, and those that are reserved in the end."""
    memory = Memory(0)
    template = [_made(memory, each, conversion) for each in layers[0]]
    for each in (weight for unit in others for weight in unit):
        memory.new(each.size_bytes)
    made = [[_copied(memory, each, conversion) for each in layer] for layer in layers]
    for tensors in template:
        memory.drop(*tensors)
    for layer, weights in zip(layers, made, strict=True):
        for each, tensors in zip(layer, weights, strict=True):
            if each.quantized:
                _replaced(memory, each, tensors, conversion)
    return memory.allocator.peak_bytes, memory.allocator.reserved_bytes


def _made(memory: Memory, weight: _Weight, conversion: Conversion) -> list[Tensor]:
    if not weight.quantized:
        return [memory.new(weight.size_bytes)]
    whole = memory.new(weight.elements * WIDTH)
    return _converted(memory, whole, weight, conversion)


def _copied(memory: Memory, weight: _Weight, conversion: Conversion) -> list[Tensor]:
    if not weight.quantized:
        return [memory.new(weight.size_bytes)]
    whole = original(memory, weight.elements)
    return _converted(memory, whole, weight, conversion)


def _converted(
    memory: Memory, whole: Tensor, weight: _Weight, conversion: Conversion
) -> list[Tensor]:
    made = to_nf4(memory, weight.elements, conversion)
    memory.drop(whole)
    return made


def _replaced(
    memory: Memory, weight: _Weight, before: list[Tensor], conversion: Conversion
) -> None:
    """Load a weight: its conversion takes the place of what was there."""
    loaded = _made(memory, weight, conversion)
    memory.drop(*before)
    before[:] = loaded
