"""Megatron-LM arguments: parallel degrees, sharding, recipe, recomputation, and the model.

Names and defaults are those of Megatron-LM's training arguments (core 0.8 to 0.15; both
spellings where an argument was renamed). Knows nothing of the text, which ``megatron_text`` reads.
"""

from haversack import checks
from haversack.parallelism import ContextParallel, Sharding
from haversack.run import (
    Attention,
    Loss,
    OffloadModule,
    Optimizer,
    Precision,
    Recompute,
    RecomputeMethod,
    RecomputeModule,
)
from haversack_server.memory.inputs.launcher import with_launcher
from haversack_server.memory.inputs.megatron_fp8 import read_fp8
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
_MOVED = {
    "attn_norm": OffloadModule.ATTENTION_NORM,
    "qkv_linear": OffloadModule.QUERY_KEY_VALUE,
    "core_attn": OffloadModule.CORE_ATTENTION,
    "attn_proj": OffloadModule.ATTENTION_OUTPUT,
    "mlp_norm": OffloadModule.FEED_FORWARD_NORM,
    "expert_fc1": OffloadModule.EXPERT_INPUT,
    "moe_act": OffloadModule.EXPERT_ACTIVATION,
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
    "defer-embedding-wgrad-compute": "inputs kept for the embedding's late gradient",
    "tp-comm-overlap": "buffers of overlapped tensor-parallel collectives",
    "distribute-saved-activations": "saved inputs split over the tensor-parallel ranks",
    "enable-cuda-graph": "memory pools of CUDA graphs",
    "external-cuda-graph": "memory pools of CUDA graphs",
    "cuda-graph-impl": "memory pools of CUDA graphs",
    "fp4-format": "fp4 kernels and copies of weights",
    "delay-wgrad-compute": "inputs kept for late gradients of weights",
    "no-masked-softmax-fusion": "scale, mask and softmax as kernels of their own",
    "export-kd-teacher-load": "a teacher model on the same device",
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
    read_fp8(reader)
    _recompute(reader)
    _attention(reader)
    _loss(reader, arguments.script)
    _exchanges(reader)
    reader.unmodelled_if_on(_MEANT)
    _side_by_side(reader)
    _moves(reader)
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
        reader.assume(
            "use-megatron-fsdp: its buffers are its own and were not read; those of "
            f"{(strategy or Sharding.REPLICATED).name} are taken"
        )
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


def _moves(reader: Reader) -> None:
    """Find the parts whose inputs go to the host; without any named the setting says too little.

    Parts that are named without the setting are not read, since Megatron-LM moves none of them.
    """
    if not reader.flag("fine-grained-activation-offloading"):
        return
    words = _words(reader, "offload-modules")
    known = tuple(_MOVED[word] for word in words if word in _MOVED)
    other = [word for word in words if word not in _MOVED]
    if other or not known:
        named = f"activations of {checks.shortly(other[0])}" if other else "activations"
        key = "offload-modules" if other else "fine-grained-activation-offloading"
        reader.unmodelled(key, f"{named} on the host")
    reader.set("training.offload_modules", known or None, "offload-modules")


def _words(reader: Reader, key: str) -> list[str]:
    """Take words that are written as a list or as "[core_attn mlp]"."""
    given = reader.given(key)
    value = given.value if given else []
    names = value if isinstance(value, list) else str(value).strip("[]").replace(",", " ").split()
    return [str(each).strip("'\"[],") for each in names]


def _side_by_side(reader: Reader) -> None:
    """Find microbatches that run side by side, one forward and one backward."""
    if reader.flag("overlap-moe-expert-parallel-comm"):
        reader.assume(
            "overlap-moe-expert-parallel-comm: a forward beside a backward is taken to hold what "
            "the two hold one after the other"
        )


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
    words = _words(reader, "recompute-modules")
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
