"""Megatron-LM arguments: parallel degrees, sharding, recipe, recomputation, and the model.

Names and defaults are those of Megatron-LM's training arguments (core 0.8 to 0.15; both
spellings where an argument was renamed). Knows nothing of the text, which ``megatron_text`` reads.
"""

from haversack import checks
from haversack.parallelism import ContextParallel, Sharding
from haversack.run import (
    Attention,
    Loss,
    Optimizer,
    Precision,
    Recompute,
    RecomputeMethod,
    RecomputeModule,
)
from haversack_server.memory.inputs.launcher import with_launcher
from haversack_server.memory.inputs.megatron_model import megatron_architecture
from haversack_server.memory.inputs.megatron_pipeline import read_pipeline
from haversack_server.memory.inputs.megatron_quiet import QUIET
from haversack_server.memory.inputs.megatron_text import Arguments, parse_arguments
from haversack_server.memory.inputs.megatron_vocabulary import BERT
from haversack_server.memory.inputs.reader import Reader
from haversack_server.memory.inputs.reading import ENGINE, GLOBAL_BATCH, Reading, Source

VERSION = 1

_DEGREES = {
    "tensor-model-parallel-size": "parallelism.tp",
    "pipeline-model-parallel-size": "parallelism.pp",
    "context-parallel-size": "parallelism.cp",
    "expert-model-parallel-size": "parallelism.ep",
    "expert-tensor-parallel-size": "parallelism.expert_tp",
}
_EXCHANGES = {
    "p2p": ContextParallel.RING,
    "all_gather": ContextParallel.ALL_GATHER,
    "allgather": ContextParallel.ALL_GATHER,
    "a2a": ContextParallel.ALL_TO_ALL,
}
_MODULES = {
    "core_attn": RecomputeModule.CORE_ATTENTION,
    "mlp": RecomputeModule.MLP,
    "layernorm": RecomputeModule.LAYER_NORM,
    "moe_act": RecomputeModule.MOE_ACTIVATION,
    "moe": RecomputeModule.MOE,
    "mla_up_proj": RecomputeModule.LATENT_EXPANSION,
}
_METHODS = {"uniform": RecomputeMethod.UNIFORM, "block": RecomputeMethod.BLOCK}
_LOSSES = {"native": Loss.FP32, "te": Loss.IN_PLACE}
_STRATEGIES = {
    "no_shard": Sharding.REPLICATED,
    "optim": Sharding.ZERO_1,
    "optim_grads": Sharding.ZERO_2,
    "optim_grads_params": Sharding.FSDP2,  # its units are gathered as FSDP2 gathers them
}
_BACKENDS = {
    "flash": Attention.FLASH,
    "fused": Attention.FLASH,  # cuDNN's kernel keeps no score matrix either
    "unfused": Attention.EAGER,
    "local": Attention.EAGER,
    "auto": Attention.UNSPECIFIED,
}
_OPTIMIZERS = {
    "adam": Optimizer.ADAMW,
    "sgd": Optimizer.SGD_MOMENTUM,
    "muon": Optimizer.MUON,
    "dist_muon": Optimizer.MUON,
    "lion": Optimizer.LION,
}
_MEANT = {
    "pipeline-model-parallel-split-rank": "an encoder on stages of its own",
    "num-distributed-optimizer-instances": "an optimizer sharded over part of the data ranks",
    "use-precision-aware-optimizer": "optimizer states in other types",
    "cpu-offloading-num-layers": "activations on the host",
    "fine-grained-activation-offloading": "activations on the host",
    "defer-embedding-wgrad-compute": "inputs kept for the embedding's late gradient",
    "tp-comm-overlap": "buffers of overlapped tensor-parallel collectives",
    "distribute-saved-activations": "saved inputs split over the tensor-parallel ranks",
    "enable-cuda-graph": "memory pools of CUDA graphs",
    "external-cuda-graph": "memory pools of CUDA graphs",
    "cuda-graph-impl": "memory pools of CUDA graphs",
    "fp8-format": "fp8 kernels and copies of weights",
    "fp4-format": "fp4 kernels and copies of weights",
    "delay-wgrad-compute": "inputs kept for late gradients of weights",
}
_FP32_TYPES = (
    "main-grads-dtype",
    "main-params-dtype",
    "exp-avg-dtype",
    "exp-avg-sq-dtype",
)


def read_megatron(text: str, source: Source) -> Reading:
    """Read arguments in any form that Megatron users have them in."""
    return read_arguments(parse_arguments(text, source), source)


def read_arguments(arguments: Arguments, source: Source) -> Reading:
    """Read arguments that are parsed already."""
    reader = Reader(arguments.values, source)
    reader.set(ENGINE, "megatron", "arguments")
    _degrees(reader)
    _sharding(reader)
    read_pipeline(reader)
    _step(reader)
    _numbers(reader)
    _recompute(reader)
    _attention(reader)
    _loss(reader, arguments.script)
    _exchanges(reader)
    reader.unmodelled_if_on(_MEANT)
    tp = reader.whole("tensor-model-parallel-size", least=1) or 1
    architecture = megatron_architecture(reader, tp, arguments.script)
    reading = reader.result(QUIET, architecture=architecture)
    return with_launcher(reading, arguments.launcher, arguments.strays, source)


def _degrees(reader: Reader) -> None:
    for key, field in _DEGREES.items():
        reader.set_whole(field, key, most=2**24)
    split = reader.flag("sequence-parallel")
    if split is not None:
        reader.set("parallelism.sequence_parallel", split, "sequence-parallel")


def _sharding(reader: Reader) -> None:
    """Find what is sharded: by the distributed optimizer, or further by one of two FSDPs."""
    strategy = reader.word(_STRATEGIES, "data-parallel-sharding-strategy")
    own_fsdp = reader.flag("use-megatron-fsdp", "use-custom-fsdp")
    distributed = reader.flag("use-distributed-optimizer")
    if reader.flag("use-torch-fsdp2"):
        reader.set("parallelism.sharding", Sharding.FSDP2, "use-torch-fsdp2")
    elif own_fsdp:
        key = "data-parallel-sharding-strategy"
        reader.set("parallelism.sharding", strategy or Sharding.REPLICATED, key)
    else:
        kind = Sharding.DISTRIBUTED_OPTIMIZER if distributed else Sharding.REPLICATED
        reader.set("parallelism.sharding", kind, "use-distributed-optimizer")


def _step(reader: Reader) -> None:
    reader.set_whole("training.microbatch", "micro-batch-size")
    reader.set_whole("training.seq", "seq-length", "encoder-seq-length")
    reader.set_whole("training.target_seq", "decoder-seq-length")
    reader.set_whole(GLOBAL_BATCH, "global-batch-size")
    moved = reader.flag("optimizer-cpu-offload")
    reader.set("parallelism.offload_optimizer", moved, "optimizer-cpu-offload")
    share = reader.number("optimizer-offload-fraction", most=1)
    if moved and share is not None and share < 1:
        reader.unmodelled("optimizer-offload-fraction", "part of an optimizer on the host")
    if reader.given("optimizer") is None:
        reader.set("training.optimizer", Optimizer.ADAMW, "optimizer (adam by default)")
        return
    reader.set_word("training.optimizer", _OPTIMIZERS, "optimizer")


def _loss(reader: Reader, script: str) -> None:
    """Find the fused losses; a GPT without one has that of the kernel profile, and so has BERT."""
    fused = reader.flag("cross-entropy-loss-fusion")
    kind = reader.word(_LOSSES, "cross-entropy-fusion-impl")
    if fused:
        reader.set("training.loss", kind or Loss.FP32, "cross-entropy-loss-fusion")
    elif script == BERT:
        reader.set("training.loss", Loss.FP32_IN_PLACE, script)


def _exchanges(reader: Reader) -> None:
    """Find what experts take at most, and how keys and values travel."""
    reader.set_word("parallelism.context_parallel", _EXCHANGES, "cp-comm-type")
    capacity = reader.number("moe-expert-capacity-factor")
    if capacity is not None:
        key = "moe-expert-capacity-factor"
        reader.set("parallelism.expert_capacity_permille", round(capacity * 1000), key)


def _numbers(reader: Reader) -> None:
    """Find the recipe: bf16 keeps gradients in fp32 unless they are reduced in bf16."""
    for key in _FP32_TYPES:
        kind = reader.given(key)
        if kind is not None and str(kind.value) not in ("fp32", "torch.float32"):
            reader.unmodelled(key, "optimizer states in other types")
    widened = reader.flag("accumulate-allreduce-grads-in-fp32")
    narrowed = reader.flag("grad-reduce-in-bf16")
    half = next((key for key in ("bf16", "fp16") if reader.flag(key)), None)
    if half is None:
        reader.set("training.precision", Precision.FP32, "bf16 and fp16 (neither)")
        return
    wide = widened or (half == "bf16" and not narrowed)
    recipe = Precision.BF16_FP32_GRADIENT if wide else Precision.BF16_FP32_MASTER
    reader.set("training.precision", recipe, half)


def _recompute(reader: Reader) -> None:
    granularity = reader.word(
        {"full": Recompute.FULL, "selective": Recompute.SELECTIVE}, "recompute-granularity"
    )
    short = reader.flag("recompute-activations", "checkpoint-activations")
    if granularity is None and short:
        granularity = Recompute.SELECTIVE
    reader.set("training.recompute", granularity or Recompute.NONE, "recompute-granularity")
    if granularity is Recompute.FULL:
        reader.set_word("training.recompute_method", _METHODS, "recompute-method")
        reader.set_whole("training.recompute_layers", "recompute-num-layers")
    if granularity is Recompute.SELECTIVE and reader.given("recompute-modules"):
        _modules(reader)


def _modules(reader: Reader) -> None:
    """Take the parts that are recomputed, written as a list or as "[core_attn mlp]"."""
    given = reader.given("recompute-modules")
    value = given.value if given else None
    names = value if isinstance(value, list) else str(value).strip("[]").replace(",", " ").split()
    words = [str(each).strip("'\"[],") for each in names]
    unknown = [word for word in words if word not in _MODULES]
    if unknown:
        reader.unmodelled("recompute-modules", f"recomputation of {checks.shortly(unknown[0])}")
    known = tuple(_MODULES[word] for word in words if word in _MODULES)
    reader.set("training.recompute_modules", known or None, "recompute-modules")


def _attention(reader: Reader) -> None:
    """Find kernels: which attention runs, and whose layers."""
    backend = reader.word(_BACKENDS, "attention-backend")
    flash = reader.flag("use-flash-attn")
    local = reader.word({"local": True, "transformer_engine": False}, "transformer-impl")
    profile = "megatron-local" if local else "megatron-te"
    reader.set("kernel_profile", profile, "transformer-impl")
    if backend:
        reader.set("training.attention", backend, "attention-backend")
    elif flash:
        reader.set("training.attention", Attention.FLASH, "use-flash-attn")
    elif local and backend is None:
        reader.set("training.attention", Attention.EAGER, "transformer-impl")
