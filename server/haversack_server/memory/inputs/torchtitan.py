"""torchtitan's configuration: the TOML files up to February 2026, and the JSON it saves since.

The two differ in spelling, not in kind: sections moved (degrees once stood under ``training`` and
``experimental``), sizes became tokens, activation checkpointing became a class. Sharding is FSDP2's
in both. The model is named by a flavor, which is not known here: its config.json says what it is.
"""

import tomllib

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel, PipelineSchedule, Sharding
from haversack.run import NumberType, Optimizer, OptimizerKernel, Precision, Recompute
from haversack.strict_json import MAX_BYTES, parse_object
from haversack_server.memory.inputs.reader import Reader, whole_number
from haversack_server.memory.inputs.reading import (
    ENGINE,
    GLOBAL_BATCH,
    MIXED_PRECISION,
    RECOMPUTE_EVERY,
    TOKENS_PER_MICROBATCH,
    Reading,
    Source,
)
from haversack_server.memory.inputs.torchtitan_quiet import QUIET, UNMODELLED

VERSION = 1

# Field, its sections over the years, its key.
_DEGREES = (
    ("dp_replicate", ("parallelism", "training"), "data_parallel_replicate_degree"),
    ("tp", ("parallelism", "training"), "tensor_parallel_degree"),
    ("pp", ("parallelism", "experimental"), "pipeline_parallel_degree"),
    ("cp", ("parallelism", "experimental"), "context_parallel_degree"),
    ("ep", ("parallelism", "experimental"), "expert_parallel_degree"),
    ("expert_tp", ("parallelism", "experimental"), "expert_tensor_parallel_degree"),
)
_SHARDS = (
    "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree",
    "training.data_parallel_degree",
)
_REPLICAS = (
    "parallelism.data_parallel_replicate_degree",
    "training.data_parallel_replicate_degree",
)
_SCHEDULES = {
    "1f1b": PipelineSchedule.ONE_F_ONE_B,
    "gpipe": PipelineSchedule.GPIPE,
    "interleaved1f1b": PipelineSchedule.INTERLEAVED,
}
_ROTATIONS = {
    "allgather": ContextParallel.ALL_GATHER,
    "alltoall": ContextParallel.RING,  # chunks go round by all-to-all; no heads are exchanged
}
_OPTIMIZERS = {"adam": Optimizer.ADAMW, "adamw": Optimizer.ADAMW}
_KERNELS = {
    "fused": OptimizerKernel.FUSED,
    "foreach": OptimizerKernel.FOREACH,
    "for-loop": OptimizerKernel.FOR_LOOP,
}
_TYPES = {"float32": NumberType.FP32, "bfloat16": NumberType.BF16, "float16": NumberType.FP16}
_RECOMPUTED = {
    "none": Recompute.NONE,
    "noac": Recompute.NONE,
    "full": Recompute.FULL,
    "fullac": Recompute.FULL,
}


def read_toml(text: str, source: Source) -> Reading:
    """Read a TOML file of torchtitan's."""
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_BYTES:
        sentence = f"the document has {size} bytes; at most {MAX_BYTES} are read"
        raise InvalidRequestError(sentence, field=source.field)
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as wrong:
        why = str(wrong) or "it is nested too deeply"
        raise InvalidRequestError(
            f"{source.name}: not TOML: {why[:120]}", field=source.field
        ) from wrong
    return _read(Reader(values, source))


def read_json(text: str, source: Source) -> Reading:
    """Read a configuration that torchtitan resolved and saved as JSON."""
    return _read(Reader(parse_object(text, field=source.field), source))


def _read(reader: Reader) -> Reading:
    _degrees(reader)
    _sharding(reader)
    _pipeline(reader)
    _batches(reader)
    _numbers(reader)
    _optimizer(reader)
    _recompute(reader)
    _compiled(reader)
    reader.unmodelled_if_on(UNMODELLED)
    flavor = reader.given("model.flavor", "model_spec.flavor")
    name = reader.given("model.name", "model_spec.name")
    if flavor or name:
        shown = " ".join(str(each.value)[:40] for each in (name, flavor) if each)
        reader.assume(f"the model {shown} is taken from the document that describes it")
    return reader.result(QUIET)


def _degrees(reader: Reader) -> None:
    for field, sections, key in _DEGREES:
        keys = tuple(f"{section}.{key}" for section in sections)
        reader.set_whole(f"parallelism.{field}", *keys, most=2**24)
    tp = reader.whole("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree")
    split = reader.flag("parallelism.enable_sequence_parallel")
    if (tp or 1) > 1:  # torchtitan's tensor parallelism splits the sequence too
        key = "parallelism.enable_sequence_parallel"
        reader.set("parallelism.sequence_parallel", split is not False, key)
    loss = reader.flag("parallelism.disable_loss_parallel", "training.disable_loss_parallel")
    if loss is not None and (tp or 1) > 1:
        reader.set("training.loss_parallel", not loss, "parallelism.disable_loss_parallel")
    method = ("parallelism.context_parallel_rotate_method",)
    reader.set_word(
        "parallelism.context_parallel",
        _ROTATIONS,
        *method,
        "experimental.context_parallel_rotate_method",
    )


def _is_replicated(reader: Reader) -> bool:
    """Tell whether nothing is sharded: one shard, and replicas."""
    return reader.whole(*_SHARDS, least=-1) == 1 and (reader.whole(*_REPLICAS) or 1) > 1


def _sharding(reader: Reader) -> None:
    """Find what is sharded: -1 takes all ranks that are left, 1 with replicas is plain DDP."""
    given = reader.given(*_SHARDS)
    shard = reader.whole(*_SHARDS, least=-1, most=2**24)
    key = given.key if given else _SHARDS[0]
    replicated = _is_replicated(reader)
    kind = Sharding.REPLICATED if replicated else Sharding.FSDP2
    reader.set("parallelism.sharding", kind, key)
    reader.set(ENGINE, "ddp" if replicated else "fsdp2", key)
    if shard is not None and shard > 0:
        reader.set("parallelism.dp_shard", shard, key)
    _reshard(reader)


def _reshard(reader: Reader) -> None:
    """Resolve "default": units are freed after their forward unless there is a pipeline."""
    keys = ("parallelism.fsdp_reshard_after_forward", "training.fsdp_reshard_after_forward")
    words = {"default": "default", "always": "always", "never": "never"}
    wanted = reader.word(words, *keys)
    stages = reader.whole(
        "parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"
    )
    if wanted is not None:
        frees = (stages or 1) == 1 if wanted == "default" else wanted == "always"
        reader.set("parallelism.reshard_after_forward", frees, keys[0])


def _pipeline(reader: Reader) -> None:
    sections = ("parallelism", "experimental")
    keys = tuple(f"{section}.pipeline_parallel_schedule" for section in sections)
    stages = reader.whole(*(f"{section}.pipeline_parallel_degree" for section in sections))
    given = reader.given(*keys)
    if given is None or (stages or 1) == 1:
        return
    schedule = _SCHEDULES.get(str(given.value).lower())
    if schedule is None:
        reader.unmodelled(given.key, "this order of microbatches")
        return
    reader.set("parallelism.pipeline_schedule", schedule, given.key)
    if schedule is PipelineSchedule.INTERLEAVED:
        reader.set("parallelism.virtual_stages", 2, f"{given.key} (2 chunks a stage)")


def _batches(reader: Reader) -> None:
    reader.set_whole("training.microbatch", "training.local_batch_size", "training.batch_size")
    reader.set_whole("training.seq", "training.seq_len", "training.max_context_length")
    tokens = "training.num_tokens_per_microbatch_per_dp_rank"
    reader.set_whole(TOKENS_PER_MICROBATCH, tokens, most=2**40)
    batch = reader.whole("training.global_batch_size", least=-1, most=2**40)
    if batch is not None and batch > 0:
        reader.set(GLOBAL_BATCH, batch, "training.global_batch_size")
    microbatch = reader.whole("parallelism.pipeline_parallel_microbatch_size", least=1, most=2**31)
    count = reader.whole("parallelism.num_pp_microbatches", least=1, most=2**31)
    if microbatch is not None or (count is not None and count > 1):
        key = "parallelism.pipeline_parallel_microbatch_size"
        key = key if microbatch is not None else "parallelism.num_pp_microbatches"
        if (reader.whole("parallelism.pipeline_parallel_degree") or 1) > 1:
            reader.unmodelled(key, "a batch cut into microbatches of the pipeline")


def _numbers(reader: Reader) -> None:
    """Find the recipe: fp32 shards, computed with in bf16 and reduced in fp32 by default."""
    stored = reader.word(_TYPES, "training.dtype") or NumberType.FP32
    compute = reader.word(_TYPES, "training.mixed_precision_param") or NumberType.BF16
    reduced = reader.word(_TYPES, "training.mixed_precision_reduce")
    if _is_replicated(reader) and (stored, compute) == (NumberType.FP32, NumberType.BF16):
        reader.set(MIXED_PRECISION, "bf16", "training.mixed_precision_param")  # by autocast
        return
    precision = {
        (NumberType.FP32, NumberType.BF16): Precision.FP32_BF16_COMPUTE,
        (NumberType.FP32, NumberType.FP32): Precision.FP32,
        (NumberType.BF16, NumberType.BF16): Precision.BF16,
    }.get((stored, compute))
    if precision is None:
        key = (
            "training.dtype" if stored is not NumberType.FP32 else "training.mixed_precision_param"
        )
        reader.unmodelled(key, "this recipe of numbers")
    reader.set("training.precision", precision, "training.mixed_precision_param")
    reader.set("training.reduce_type", reduced, "training.mixed_precision_reduce")


def _optimizer(reader: Reader) -> None:
    given = reader.given("optimizer.name")
    if given is not None:
        kind = _OPTIMIZERS.get(str(given.value).lower())
        if kind is None:
            reader.unmodelled("optimizer.name", "its states")
        reader.set("training.optimizer", kind, "optimizer.name")
    reader.set_word("training.optimizer_kernel", _KERNELS, "optimizer.implementation")
    early = reader.flag("optimizer.early_step_in_backward")
    reader.set("training.optimizer_in_backward", early, "optimizer.early_step_in_backward")
    moved = reader.flag("training.enable_cpu_offload")
    reader.set("parallelism.offload_parameters", moved, "training.enable_cpu_offload")


def _compiled(reader: Reader) -> None:
    on = reader.flag("compile.enable", "training.compile")
    profile = "compile" if on else "torchtitan-eager"
    reader.set("kernel_profile", profile, "compile.enable" if on else "torchtitan")


def _recompute(reader: Reader) -> None:
    keys = ("activation_checkpoint.mode", "activation_checkpoint.type")
    given = reader.given(*keys)
    option = reader.given("activation_checkpoint.selective_ac_option")
    budget = reader.given("activation_checkpoint.memory_budget")
    if given is None:
        return
    kind = str(given.value).lower()
    if kind in _RECOMPUTED:
        reader.set("training.recompute", _RECOMPUTED[kind], given.key)
    elif kind in ("selective", "selectiveac") and option and whole_number(option.value):
        reader.set(RECOMPUTE_EVERY, whole_number(option.value), option.key)
    elif kind in ("selective", "selectiveac") and (option is None or option.value == "op"):
        reader.set("training.recompute", Recompute.SELECTIVE, given.key)
    elif kind in ("selective", "selectiveac"):
        reader.unmodelled("activation_checkpoint.selective_ac_option", "this selective policy")
    elif kind in ("memory_budget", "memorybudgetac"):
        share = f" of {budget.value}" if budget else ""
        reader.unmodelled(given.key, f"the compiler's own budget{share}".replace("\n", " "))
    else:
        reader.refuse(given.key, f"is {kind[:40]!r}; use none, full, selective or memory_budget")
