"""Low-rank adapters and quantized frozen weights, as the files of trainers spell them.

LLaMA-Factory's keys, axolotl's and TRL's; defaults that a file leaves out are PEFT's (rank 8, the
family's own targets) or LLaMA-Factory's (all products). Knows nothing of the model.
"""

from haversack.finetuning import LAYER_TARGETS, MODULES, Finetuning, StoredWeights
from haversack_server.memory.inputs.reader import Reader

_PARTS = {"embed_tokens": "embedding", "lm_head": "head", "norm": "norms"}
_ALL = ("all", "all-linear")
_RANKS = ("lora_rank", "lora_r")
_SAVED = ("additional_target", "lora_modules_to_save", "modules_to_save")
_QUANTIZED = {
    "load_in_8bit": "quantized weights",
    "load_in_4bit": "quantized weights",
    "quantization_bit": "quantized weights",
}
QUIET = ("lora_alpha", "use_rslora", "lora_fan_in_fan_out", "peft_use_rslora", "lora_task_type")


def read_lora(reader: Reader) -> bool:
    """Read what trains, and say whether anything is frozen."""
    if not _has_adapters(reader):
        reader.unmodelled_if_on(_QUANTIZED)
        return False
    rank = reader.whole(*_RANKS, least=1, most=2**20)
    if rank is None:
        rank = 8
        reader.assume("the rank of the adapters is missing: 8, PEFT's default")
    finetuning = Finetuning(
        rank=rank,
        targets=_targets(reader),
        adapter_dropout=_dropout(reader),
        adapter_in_fp32=not reader.flag("pure_bf16"),
        trained_parts=_names(reader, _PARTS, _SAVED),
        frozen_weights=_stored(reader),
    )
    reader.set("training.finetuning", finetuning, "adapters")
    return True


def _has_adapters(reader: Reader) -> bool:
    """Tell whether the file asks for adapters; another way of freezing is named."""
    kind, adapter = reader.given("finetuning_type"), reader.given("adapter")
    wanted = {str(each.value).lower() for each in (kind, adapter) if each and each.value}
    other = wanted - {"full", "lora", "qlora"}
    if other and (kind or adapter):
        key = "finetuning_type" if kind else "adapter"
        reader.unmodelled(key, "frozen parameters of another kind")
        return False
    asked = reader.flag("use_peft") or reader.has(*_RANKS, "lora_target", "lora_target_modules")
    return bool(wanted & {"lora", "qlora"}) or (bool(asked) and "full" not in wanted)


def _dropout(reader: Reader) -> float | None:
    given = reader.number("lora_dropout", most=0.999)
    return None if given is None else float(given)


def _targets(reader: Reader) -> tuple[str, ...]:
    """Take the products that have adapters: by name, or all of a layer's."""
    given = reader.given("lora_target", "lora_target_modules")
    everywhere = reader.flag("lora_target_linear")
    by_default = given is None and reader.has("finetuning_type")  # LLaMA-Factory's "all"
    if everywhere or by_default or (given and str(given.value).lower() in _ALL):
        return LAYER_TARGETS
    return _names(reader, MODULES, ("lora_target", "lora_target_modules"))


def _names(reader: Reader, known: dict[str, str], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Take names of modules, as a list or parted by commas; one that is not known is named."""
    given = reader.given(*keys)
    if given is None:
        return ()
    listed = given.value if isinstance(given.value, list) else str(given.value).split(",")
    names = [str(name).strip() for name in listed]
    if any(name not in known for name in names):
        reader.unmodelled(given.key, "modules of these names")
    return tuple(dict.fromkeys(known[name] for name in names if name in known))


def _stored(reader: Reader) -> StoredWeights:
    """Find how frozen weights are stored; axolotl and LLaMA-Factory quantize scales too."""
    bits = reader.whole("quantization_bit", least=4, most=8)
    four = bits == 4 or reader.flag("load_in_4bit")
    nested = reader.flag("use_bnb_nested_quant", "double_quantization")
    if four:
        plain = nested is False or (nested is None and reader.has("use_peft"))
        return StoredWeights.NF4 if plain else StoredWeights.NF4_DOUBLE
    if bits == 8 or reader.flag("load_in_8bit"):
        return StoredWeights.INT8
    return StoredWeights.COMPUTE
