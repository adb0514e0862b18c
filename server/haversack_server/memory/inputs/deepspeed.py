"""DeepSpeed's JSON configuration: ZeRO stage, buckets and windows, recipe, batch arithmetic.

Keys and defaults are DeepSpeed's (0.9 to 0.17, both spellings of renamed keys). "auto" is what
Hugging Face's integration fills in: from its own arguments, or from the model's hidden size.
"""

from haversack.parallelism import ContextParallel, Sharding
from haversack.run import NumberType, Optimizer, OptimizerKernel, Precision
from haversack.strict_json import parse_object
from haversack_server.memory.inputs.reader import Reader
from haversack_server.memory.inputs.reading import (
    ENGINE,
    GLOBAL_BATCH,
    MIXED_PRECISION,
    FromHidden,
    Reading,
    Source,
)

VERSION = 1

_ZERO = "zero_optimization"
_STAGES = {
    "0": Sharding.REPLICATED,
    "1": Sharding.ZERO_1,
    "2": Sharding.ZERO_2,
    "3": Sharding.ZERO_3,
}
# transformers' HfTrainerDeepSpeedConfig.trainer_config_finalize, for "auto".
_BUCKET = FromHidden(1000, 2, "hidden size squared,")
_PREFETCH = FromHidden(900, 2, "0.9 x hidden size squared,")
_PERSISTENT = FromHidden(10_000, 1, "10 x hidden size,")

# Key under zero_optimization, its field, what "auto" stands for.
_WINDOWS = (
    ("reduce_bucket_size", "parallelism.reduce_bucket_elements", _BUCKET),
    ("stage3_prefetch_bucket_size", "parallelism.prefetch_elements", _PREFETCH),
    ("stage3_param_persistence_threshold", "parallelism.persistent_elements", _PERSISTENT),
    ("stage3_max_live_parameters", "parallelism.max_live_elements", None),
    ("stage3_max_reuse_distance", "parallelism.max_reuse_elements", None),
)
_OPTIMIZERS = {
    "adam": Optimizer.ADAMW,
    "adamw": Optimizer.ADAMW,
    "sgd": Optimizer.SGD,
    "adagrad": Optimizer.ADAGRAD,
    "lion": Optimizer.LION,
    "muon": Optimizer.MUON,
}
_LEFT_TO_ARGUMENTS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "optimizer.type",
    "bf16.enabled",
    "fp16.enabled",
)
# Field, the key of its device, and the flag of older files.
_OFFLOADS = (
    ("offload_optimizer", f"{_ZERO}.offload_optimizer.device", f"{_ZERO}.cpu_offload"),
    ("offload_parameters", f"{_ZERO}.offload_param.device", f"{_ZERO}.cpu_offload_params"),
)
_OTHERS = {
    f"{_ZERO}.zero_quantized_weights": "quantized gathers",
    f"{_ZERO}.zero_quantized_gradients": "quantized reductions",
    f"{_ZERO}.zero_quantized_nontrainable_weights": "quantized frozen weights",
    f"{_ZERO}.zenflow": "ZenFlow's host-side updates",
    "activation_checkpointing.partition_activations": "saved inputs split over ranks",
    "activation_checkpointing.cpu_checkpointing": "saved inputs on the host",
    "activation_checkpointing.contiguous_memory_optimization": "a buffer for saved inputs",
    "amp.enabled": "apex",
    "torch_autocast.enabled": "autocast inside DeepSpeed",
    "bf16.bf16_master_weights_and_grads": "master weights in bf16",
    "bf16.bf16_optimizer_states": "optimizer states in bf16",
    "fp16.fp16_master_weights_and_grads": "master weights in fp16",
    "fp16.fp16_master_weights_and_gradients": "master weights in fp16",
    "compression_training": "compression",
    "sparse_attention": "sparse attention",
    "curriculum_learning.enabled": "sequences that grow during training",
    "hybrid_engine.enabled": "an inference engine beside training",
    "compile.deepcompile": "DeepCompile",
}
QUIET = (
    "steps_per_print",
    "wall_clock_breakdown",
    "gradient_clipping",
    "prescale_gradients",
    "gradient_predivide_factor",
    "sparse_gradients",
    "scheduler.*",
    *(
        f"optimizer.params.{each}"
        for each in (
            "lr",
            "betas",
            "eps",
            "weight_decay",
            "bias_correction",
            "adam_w_mode",
            "nesterov",
        )
    ),
    "optimizer.legacy_fusion",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "dump_state",
    "memory_breakdown",
    "disable_allgather",
    "tensorboard.*",
    "wandb.*",
    "comet.*",
    "csv_monitor.*",
    "comms_logger.*",
    "flops_profiler.*",
    "checkpoint.*",
    "elasticity.*",
    "aio.*",
    "seed",
    "fp16.auto_cast",
    "fp16.loss_scale",
    "fp16.loss_scale_window",
    "fp16.initial_scale_power",
    "fp16.hysteresis",
    "fp16.consecutive_hysteresis",
    "fp16.min_loss_scale",
    "bf16.immediate_grad_update",
    "bf16.check_grad_overflow",
    "activation_checkpointing.number_checkpoints",
    "activation_checkpointing.profile",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "amp.*",
    f"{_ZERO}.reduce_scatter",
    f"{_ZERO}.allgather_partitions",
    f"{_ZERO}.round_robin_gradients",
    f"{_ZERO}.ignore_unused_parameters",
    f"{_ZERO}.legacy_stage1",
    f"{_ZERO}.elastic_checkpoint",
    f"{_ZERO}.load_from_fp32_weights",
    f"{_ZERO}.log_trace_cache_warnings",
    f"{_ZERO}.stage3_gather_*_weights_on_model_save",
    f"{_ZERO}.offload_optimizer.*",
    f"{_ZERO}.offload_param.*",
)


def read_deepspeed(text: str, source: Source) -> Reading:
    """Read the text of a ds_config.json."""
    return read_values(Reader(parse_object(text, field=source.field), source))


def read_values(reader: Reader) -> Reading:
    """Read a configuration that is parsed already, such as one inside another file."""
    reader.set(ENGINE, "deepspeed", "zero_optimization")
    _batches(reader)
    _stage(reader)
    _windows(reader)
    _recipe(reader)
    _optimizer(reader)
    _axes(reader)
    for key in _LEFT_TO_ARGUMENTS:
        if reader.is_auto(key):
            reader.assume(f"{key} is auto: left to the training arguments, or to what is assumed")
    _offloads(reader)
    reader.unmodelled_if_on(_OTHERS)
    return reader.result(QUIET)


def _batches(reader: Reader) -> None:
    reader.set_whole("training.microbatch", "train_micro_batch_size_per_gpu")
    reader.set_whole("training.accumulation", "gradient_accumulation_steps")
    reader.set_whole(GLOBAL_BATCH, "train_batch_size")


def _stage(reader: Reader) -> None:
    """Find the stage; without the section DeepSpeed shards nothing."""
    reader.section(_ZERO)
    stage = reader.word(_STAGES, f"{_ZERO}.stage")
    key = f"{_ZERO}.stage"
    if stage is None and not reader.is_auto(key):
        stage = Sharding.REPLICATED
        reader.assume(f"{key} is missing: 0, nothing is sharded")
    reader.set("parallelism.sharding", stage, key)
    for name, field in (("overlap_comm", "overlap_reduce"), ("contiguous_gradients", "")):
        value = reader.flag(f"{_ZERO}.{name}")
        reader.set(f"parallelism.{field or name}", value, f"{_ZERO}.{name}")


def _windows(reader: Reader) -> None:
    for name, field, auto in _WINDOWS:
        key = f"{_ZERO}.{name}"
        if auto is not None and reader.is_auto(key):
            reader.set(field, auto, key)
        else:
            least = 1 if "bucket" in name else 0
            reader.set_whole(field, key, least=least, most=2**53)
    # The gather of ZeRO 1 and 2 after the step, and of the optimizer's sub-groups, stay inside
    # what reduction and update held before.
    reader.whole(f"{_ZERO}.allgather_bucket_size")
    reader.whole(f"{_ZERO}.sub_group_size")


def _offloads(reader: Reader) -> None:
    """Find what lives on the host; what lives on a disk is not modelled."""
    for field, key, flag in _OFFLOADS:
        device = reader.word({"none": "none", "cpu": "cpu", "nvme": "nvme"}, key)
        if device == "nvme":
            reader.unmodelled(key, "states on a disk")
        if device == "cpu" or reader.flag(flag):
            reader.set(f"parallelism.{field}", True, key if device else flag)
    for section in ("offload_optimizer", "offload_param"):
        key = f"{_ZERO}.{section}.pin_memory"
        reader.set("parallelism.pin_memory", reader.flag(key) or None, key)
    share = reader.number(f"{_ZERO}.offload_optimizer.ratio", most=1)
    if share is not None and share < 1:
        reader.unmodelled(f"{_ZERO}.offload_optimizer.ratio", "part of the states on the host")


def _recipe(reader: Reader) -> None:
    """Find what parameters are held in; with a half precision the optimizer has an fp32 copy."""
    half = {
        name: reader.flag(*keys)
        for name, keys in (
            ("fp16", ("fp16.enabled",)),
            ("bf16", ("bf16.enabled", "bfloat16.enabled")),
        )
    }
    kinds = {"fp32": True, "bf16": False, "fp16": False}
    wide = reader.word(kinds, "data_types.grad_accum_dtype")
    if half["fp16"] and half["bf16"]:
        reader.refuse("bf16.enabled", "is true, and so is fp16.enabled; enable one")
        return
    on = next((name for name, enabled in half.items() if enabled), None)
    if on is not None and wide:
        key = "data_types.grad_accum_dtype"
        reader.set("training.precision", Precision.BF16_FP32_GRADIENT, key)
    elif on is not None:
        reader.set(MIXED_PRECISION, on, f"{on}.enabled")
    elif not any(reader.is_auto(f"{name}.enabled") for name in half):
        reader.set(MIXED_PRECISION, "no", "bf16.enabled and fp16.enabled (neither)")


def _optimizer(reader: Reader) -> None:
    """Find the optimizer; DeepSpeed's own Adam is one fused kernel."""
    given = reader.given("optimizer.type")
    foreach = reader.flag("optimizer.params.torch_adam")
    momentum = reader.number("optimizer.params.momentum")
    if given is None or reader.is_auto("optimizer.type"):
        return
    kind = _OPTIMIZERS.get(str(given.value).lower())
    if kind is None:
        reader.unmodelled("optimizer.type", "its states")
        return
    if kind is Optimizer.SGD and momentum:
        kind = Optimizer.SGD_MOMENTUM
    reader.set("training.optimizer", kind, "optimizer.type")
    if foreach:
        key = "optimizer.params.torch_adam"
        reader.set("training.optimizer_kernel", OptimizerKernel.FOREACH, key)


def _axes(reader: Reader) -> None:
    """Find sharding over part of the ranks, and the axes beside data."""
    reader.set_whole("parallelism.tp", "tensor_parallel.autotp_size", most=2**24)
    ulysses = reader.whole("sequence_parallel_size", least=1, most=2**24)
    if ulysses is not None and ulysses > 1:
        reader.set("parallelism.cp", ulysses, "sequence_parallel_size")
        exchange = ContextParallel.ALL_TO_ALL
        reader.set("parallelism.context_parallel", exchange, "sequence_parallel_size")
    mics = reader.whole(f"{_ZERO}.mics_shard_size", least=-1, most=2**24)  # -1 is off
    reader.set(
        "parallelism.dp_shard", mics if mics and mics > 0 else None, f"{_ZERO}.mics_shard_size"
    )
    secondary = reader.whole(f"{_ZERO}.zero_hpz_partition_size")
    if secondary is not None and secondary > 1:
        reader.unmodelled(f"{_ZERO}.zero_hpz_partition_size", "a second shard of the parameters")
    kinds = {"fp32": NumberType.FP32, "bf16": NumberType.BF16, "fp16": NumberType.FP16}
    reader.set_word("training.reduce_type", kinds, "communication_data_type")
