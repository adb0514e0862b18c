"""Hugging Face TrainingArguments, JSON or YAML, and the files that trainers around them take.

Keys are transformers' (4.30 to 5) with those of TRL, axolotl and LLaMA-Factory that change memory.
A DeepSpeed or FSDP configuration may stand inside; one in a file of its own has to be among the
documents. Knows nothing of the model.
"""

from collections.abc import Mapping
from typing import Any

from haversack import checks
from haversack.parallelism import WrapPolicy
from haversack.run import Attention, Loss, Optimizer, OptimizerKernel, Precision, Recompute
from haversack.strict_json import parse_object
from haversack_server.memory.inputs import deepspeed
from haversack_server.memory.inputs.fsdp_keys import QUIET as FSDP_QUIET
from haversack_server.memory.inputs.fsdp_keys import STRATEGIES, FsdpKeys, Strategy
from haversack_server.memory.inputs.launcher import with_launcher
from haversack_server.memory.inputs.lora_keys import QUIET as LORA_QUIET
from haversack_server.memory.inputs.lora_keys import read_lora
from haversack_server.memory.inputs.megatron_text import is_yaml, parse_arguments
from haversack_server.memory.inputs.reader import Given, Reader
from haversack_server.memory.inputs.reading import (
    DEEPSPEED_FILE,
    ENGINE,
    MIXED_PRECISION,
    Reading,
    Source,
    joined,
)
from haversack_server.memory.inputs.training_quiet import QUIET, UNMODELLED
from haversack_server.memory.inputs.yaml_text import parse_mapping

VERSION = 1

_MICROBATCH = ("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size")
_LENGTH = ("max_seq_length", "max_length", "cutoff_len", "sequence_len", "model_max_length")
_ADAMW, _FUSED, _FOREACH = Optimizer.ADAMW, OptimizerKernel.FUSED, OptimizerKernel.FOREACH
_OPTIMIZERS = {
    "adamw_torch": (_ADAMW, _FOREACH),  # PyTorch's choice on GPUs where nothing is said
    "adamw_torch_fused": (_ADAMW, _FUSED),
    "adamw_apex_fused": (_ADAMW, _FUSED),
    "adamw_hf": (_ADAMW, OptimizerKernel.FOR_LOOP),
    "sgd": (Optimizer.SGD, _FOREACH),
    "rmsprop": (Optimizer.RMSPROP, _FOREACH),
    "adagrad": (Optimizer.ADAGRAD, _FOREACH),
    "adafactor": (Optimizer.ADAFACTOR_FP32, None),
    "adamw_8bit": (Optimizer.ADAMW_8BIT, None),
    "adamw_bnb_8bit": (Optimizer.ADAMW_8BIT, None),
    "paged_adamw": (Optimizer.PAGED_ADAMW, None),
    "paged_adamw_32bit": (Optimizer.PAGED_ADAMW, None),
    "paged_adamw_8bit": (Optimizer.PAGED_ADAMW_8BIT, None),
    "lion_32bit": (Optimizer.LION, None),
    "lion_8bit": (Optimizer.LION_8BIT, None),
    "paged_lion_32bit": (Optimizer.PAGED_LION, None),
    "paged_lion_8bit": (Optimizer.PAGED_LION_8BIT, None),
}
_ATTENTIONS = {
    "fa2": Attention.FLASH,
    "flash_attention_2": Attention.FLASH,
    "flash_attention_3": Attention.FLASH,
    "sdpa": Attention.FLASH,
    "auto": Attention.UNSPECIFIED,
    "eager": Attention.EAGER,
    "disabled": Attention.EAGER,
}


def read_training_arguments(text: str, source: Source) -> Reading:
    """Read the text of training arguments: JSON, YAML, or a command line with them."""
    start = text.lstrip()
    if start.startswith("{"):
        return _read(parse_object(text, field=source.field), source)
    if "--" not in start or is_yaml(start):
        return _read(parse_mapping(text, field=source.field), source)
    line = parse_arguments(text, source)
    values = {key.replace("-", "_"): value for key, value in line.values.items()}
    return with_launcher(_read(values, source), line.launcher, line.strays, source)


def _read(values: dict[Any, Any], source: Source) -> Reading:
    inner = values.pop("deepspeed", None)
    reader = Reader(values, source)
    _steps(reader)
    _numbers(reader)
    _optimizer(reader)
    _kernels(reader)
    _fsdp(reader)
    section = _deepspeed(reader, inner)
    read_lora(reader)
    reader.unmodelled_if_on(UNMODELLED)
    _training_kind(reader)
    quiet = (*QUIET, *LORA_QUIET, *(f"fsdp_config.{each}" for each in FSDP_QUIET))
    reading = reader.result(quiet)
    return joined(reading, section, "deepspeed") if section else reading


def _steps(reader: Reader) -> None:
    reader.set_whole("training.microbatch", *_MICROBATCH)
    reader.set_whole("training.accumulation", "gradient_accumulation_steps")
    reader.set_whole("training.seq", *_LENGTH)
    if reader.flag("auto_find_batch_size"):
        reader.assume("auto_find_batch_size: the microbatch is taken as it is written")
    checkpoints = reader.flag("gradient_checkpointing")
    off = reader.flag("disable_gradient_checkpointing")
    if checkpoints:
        reader.set("training.recompute", Recompute.FULL, "gradient_checkpointing")
    elif checkpoints is None and not off and reader.has("cutoff_len", "finetuning_type"):
        key = "disable_gradient_checkpointing (LLaMA-Factory checkpoints by default)"
        reader.set("training.recompute", Recompute.FULL, key)
    if reader.flag("packing", "sample_packing"):
        reader.assume("packing: every sequence is as long as the longest")


def _numbers(reader: Reader) -> None:
    on = [name for name in ("bf16", "fp16") if reader.flag(name)]
    if reader.flag("pure_bf16"):
        reader.set("training.precision", Precision.BF16, "pure_bf16")
        return
    if len(on) > 1:
        reader.refuse("fp16", "is true, and so is bf16; enable one")
    elif on:
        reader.set(MIXED_PRECISION, on[0], on[0])


def _optimizer(reader: Reader) -> None:
    given = reader.given("optim", "optimizer")
    if given is None:
        reader.assume(
            "optim is missing: a fused AdamW, as in transformers 5; adamw_torch, as in 4, holds a "
            "temporary as large as what it updates"
        )
        return
    found = _OPTIMIZERS.get(str(given.value).lower())
    if found is None:
        reader.unmodelled(given.key, "its states")
        return
    reader.set("training.optimizer", found[0], given.key)
    reader.set("training.optimizer_kernel", found[1], given.key)


def _kernels(reader: Reader) -> None:
    if reader.flag("torch_compile"):
        reader.set("kernel_profile", "compile", "torch_compile")
    if reader.flag("use_liger_kernel", "enable_liger_kernel"):
        reader.set("training.loss", Loss.FUSED_LINEAR, "use_liger_kernel")
    if reader.flag("flash_attention"):
        reader.set("training.attention", Attention.FLASH, "flash_attention")
    else:
        keys = ("attn_implementation", "flash_attn")
        attention = reader.word(_ATTENTIONS, *keys)
        reader.set("training.attention", attention or None, "attn_implementation")


def _fsdp(reader: Reader) -> None:
    """Read the flags of ``fsdp`` and the section beside them."""
    given = reader.given("fsdp")
    has_section = reader.section("fsdp_config") or reader.has("fsdp_config")
    if given is None or given.value in ("", False, []):
        if has_section and given is None:  # its keys stay among the ignored ones
            reader.assume("fsdp is not given, so fsdp_config has no effect")
        return
    named = _strategy(reader, given)
    FsdpKeys(reader, "fsdp_config", None).read(named, "fsdp" if named else "")


def _strategy(reader: Reader, given: Given) -> Strategy | None:
    """Take "full_shard auto_wrap" apart; true alone names no strategy."""
    if given.value is True:
        return None
    value = given.value
    words = value if isinstance(value, list) else str(value).split()
    flags = [str(word).lower() for word in words]
    if "auto_wrap" in flags:
        reader.set("parallelism.wrap", WrapPolicy.LAYERS, "fsdp")
    else:
        reader.unmodelled("fsdp", "one unit of the whole model, since nothing is wrapped")
    if "offload" in flags:
        reader.set("parallelism.offload_parameters", True, "fsdp")
    others = [flag for flag in flags if flag not in ("auto_wrap", "offload")]
    unknown = [flag for flag in others if flag not in STRATEGIES]
    if unknown or len(others) > 1:
        names = ", ".join(name for name in STRATEGIES if not name.isdigit())
        reader.refuse("fsdp", f"names {(unknown or others)[-1][:40]!r}; use one of {names}")
        return None
    return STRATEGIES[others[0]] if others else None


def _deepspeed(reader: Reader, given: object) -> Reading | None:
    """Read a DeepSpeed configuration inside, or note the name of its file."""
    if isinstance(given, Mapping):
        source = Source(f"{reader.source.name}, deepspeed", f"{reader.source.field}.deepspeed")
        return deepspeed.read_values(Reader(given, source))
    if isinstance(given, str) and given:
        reader.set(ENGINE, "deepspeed", "deepspeed")
        reader.set(DEEPSPEED_FILE, given, "deepspeed")
    elif given:
        wanted = "give the name of a file, or an object"
        reader.refuse("deepspeed", f"is {checks.shortly(given)}; {wanted}")
    return None


def _training_kind(reader: Reader) -> None:
    """Name ways of training that hold another model beside the trained one, or run elsewhere."""
    stage = reader.given("stage")
    if stage is not None and str(stage.value).lower() not in ("sft", "pt"):
        reader.unmodelled("stage", "a second model beside the trained one")
    if reader.flag("use_cpu", "no_cuda"):
        reader.unmodelled("use_cpu" if reader.has("use_cpu") else "no_cuda", "training on CPUs")
