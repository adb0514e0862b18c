"""accelerate's launch configuration, YAML: ranks, precision, and FSDP, DeepSpeed or Megatron.

Keys are accelerate's (0.20 to 1.12). A DeepSpeed configuration inside is read in accelerate's own
spelling; one in a file of its own has to be among the documents. Knows nothing of the model.
"""

from haversack.parallelism import Sharding
from haversack.run import Recompute
from haversack_server.memory.inputs.fsdp_keys import QUIET as FSDP_QUIET
from haversack_server.memory.inputs.fsdp_keys import FsdpKeys
from haversack_server.memory.inputs.reader import Reader
from haversack_server.memory.inputs.reading import (
    DEEPSPEED_FILE,
    ENGINE,
    MIXED_PRECISION,
    Reading,
    Source,
)
from haversack_server.memory.inputs.yaml_text import parse_mapping

VERSION = 1

_KINDS = {
    "no": "alone",
    "false": "alone",  # an unquoted no is false in YAML
    "multi_gpu": "ddp",
    "fsdp": "fsdp",
    "deepspeed": "deepspeed",
    "megatron_lm": "megatron",
}
_PRECISIONS = {"no": "no", "false": "no", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
_STAGES = {
    "0": Sharding.REPLICATED,
    "1": Sharding.ZERO_1,
    "2": Sharding.ZERO_2,
    "3": Sharding.ZERO_3,
}
_AXES = {
    "dp_replicate": "dp_replicate",
    "dp_shard": "dp_shard",
    "tp": "tp",
    "cp": "cp",
    "sp": "cp",
}
_OFFLOADS = (
    ("offload_optimizer", "deepspeed_config.offload_optimizer_device"),
    ("offload_parameters", "deepspeed_config.offload_param_device"),
)
_OTHERS = {
    "use_cpu": "training on CPUs",
    "fp8_config": "fp8 kernels and copies of weights",
    "mpirun_config": "ranks that mpirun starts",
}
QUIET = (
    "compute_environment",
    "debug",
    "downcast_bf16",
    "dynamo_*",
    "enable_cpu_affinity",
    "gpu_ids",
    "ipex_config*",
    "machine_rank",
    "main_process_*",
    "main_training_function",
    "rdzv_backend",
    "same_network",
    "tpu_*",
    "commands",
    "command_file",
    "deepspeed_config.gradient_clipping",
    "deepspeed_config.zero3_init_flag",
    "deepspeed_config.zero3_save_16bit_model",
    "deepspeed_config.deepspeed_multinode_launcher",
    "deepspeed_config.deepspeed_hostfile",
    "deepspeed_config.deepspeed_*_filter",
    "megatron_lm_config.megatron_lm_gradient_clipping",
    *(f"fsdp_config.{each}" for each in FSDP_QUIET),
    *(f"fsdp_config.fsdp_{each}" for each in FSDP_QUIET),
)


def read_accelerate(text: str, source: Source) -> Reading:
    """Read the text of an accelerate configuration."""
    reader = Reader(parse_mapping(text, field=source.field), source)
    kind = reader.word(_KINDS, "distributed_type") or "alone"
    ranks = _ranks(reader)
    _precision(reader)
    _axes(reader)
    _compiled(reader)
    if reader.section("fsdp_config") and kind == "fsdp":
        FsdpKeys(reader, "fsdp_config", ranks).read()
    if kind == "deepspeed":
        _deepspeed(reader)
    if kind == "megatron":
        _megatron(reader)
    if kind == "ddp":
        reader.set(ENGINE, "ddp", "distributed_type")
        reader.set("parallelism.sharding", Sharding.REPLICATED, "distributed_type")
    reader.unmodelled_if_on(_OTHERS)
    return reader.result(QUIET)


def _ranks(reader: Reader) -> int | None:
    """Take the number of ranks; gives how many there are on each machine."""
    reader.set_whole("parallelism.world_size", "num_processes", most=2**24)
    processes = reader.whole("num_processes", least=1, most=2**24)
    machines = reader.whole("num_machines", least=1, most=2**20) or 1
    if processes is None:
        return None
    if processes % machines:
        reader.refuse("num_processes", f"is {processes}, not the same on {machines} machines")
    return processes // machines


def _precision(reader: Reader) -> None:
    mixed = reader.word(_PRECISIONS, "mixed_precision")
    if mixed == "fp8":
        reader.unmodelled("mixed_precision", "fp8 kernels and copies of weights")
    elif mixed is not None:
        reader.set(MIXED_PRECISION, mixed, "mixed_precision")


def _axes(reader: Reader) -> None:
    """Take the degrees of the parallelism_config of newer files."""
    reader.section("parallelism_config")
    for name, field in _AXES.items():
        key = f"parallelism_config.parallelism_config_{name}_size"
        reader.set_whole(f"parallelism.{field}", key, most=2**24)


def _compiled(reader: Reader) -> None:
    keys = ("dynamo_config.dynamo_backend", "dynamo_backend")
    backend = reader.given(*keys)
    if backend is not None and str(backend.value).lower() not in ("no", "none", "eager", "false"):
        reader.set("kernel_profile", "compile", backend.key)


def _deepspeed(reader: Reader) -> None:
    """Read the few keys that accelerate itself has for DeepSpeed, or the name of its file."""
    section = "deepspeed_config"
    reader.set(ENGINE, "deepspeed", "distributed_type")
    reader.section(section)
    reader.set_word("parallelism.sharding", _STAGES, f"{section}.zero_stage")
    reader.set_whole("training.accumulation", f"{section}.gradient_accumulation_steps")
    reader.set_whole("training.microbatch", f"{section}.train_micro_batch_size_per_gpu")
    file = reader.given(f"{section}.deepspeed_config_file")
    if file is not None:
        reader.set(DEEPSPEED_FILE, str(file.value), file.key)
    elif not reader.has(f"{section}.zero_stage"):
        reader.set("parallelism.sharding", Sharding.ZERO_2, f"{section}.zero_stage (2 by default)")
    for field, key in _OFFLOADS:
        device = reader.word({"none": "none", "cpu": "cpu", "nvme": "nvme"}, key)
        if device == "nvme":
            reader.unmodelled(key, "states on a disk")
        reader.set(f"parallelism.{field}", device == "cpu" or None, key)
    if reader.given(f"{section}.deepspeed_moe_layer_cls_names"):
        key = f"{section}.deepspeed_moe_layer_cls_names"
        reader.assume(f"{key}: taken for the layers that the model's own file describes")


def _megatron(reader: Reader) -> None:
    prefix = "megatron_lm_config.megatron_lm"
    reader.section("megatron_lm_config")
    reader.set(ENGINE, "megatron", "distributed_type")
    reader.set("kernel_profile", "megatron-te", "distributed_type")
    reader.set_whole("parallelism.tp", f"{prefix}_tp_degree", most=2**24)
    reader.set_whole("parallelism.pp", f"{prefix}_pp_degree", most=2**24)
    reader.set_whole("training.accumulation", f"{prefix}_num_micro_batches")
    split = reader.flag(f"{prefix}_sequence_parallelism")
    reader.set("parallelism.sequence_parallel", split, f"{prefix}_sequence_parallelism")
    if reader.flag(f"{prefix}_use_distributed_optimizer"):
        key = f"{prefix}_use_distributed_optimizer"
        reader.set("parallelism.sharding", Sharding.DISTRIBUTED_OPTIMIZER, key)
    if reader.flag(f"{prefix}_recompute_activations"):
        reader.set("training.recompute", Recompute.SELECTIVE, f"{prefix}_recompute_activations")
