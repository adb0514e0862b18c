"""A run in the few settings that decide its memory: what it is compared with measured runs by.

Also names its *kind*, by which the ends of its interval are chosen: kinds are settings whose errors
differ, not cases.
"""

from haversack.parallelism import Sharding
from haversack.run import Loss, Recompute, TrainingRun
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.autocast_limits import is_autocast
from haversack_server.memory.blocks import Shape
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.evidence import TRAINED, Settings
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.spread import PLAIN
from haversack_server.memory.traits import Head, Stack

_DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)
WIDE = 4  # bytes of a number for which there are no flash kernels


def settings_of(
    run: TrainingRun, architecture: Architecture, degrees: Degrees, shape: Shape
) -> Settings:
    """Write a run down as settings: numbers and words."""
    return {
        "family": architecture.family,
        "layers": architecture.layers,
        "hidden": architecture.hidden,
        "vocabulary": architecture.vocab,
        "experts": architecture.experts,
        "seq": shape.seq,
        "microbatch": shape.microbatch,
        "bytes of a number": shape.logit_bytes,
        "attention": str(shape.attention),
        "recompute": (run.training.recompute or Recompute.NONE).name.lower(),
        "tp": degrees.tp,
        "pp": degrees.pp,
        "chunks": run.parallelism.virtual_stages or 1,
        "cp": degrees.cp,
        "ep": degrees.ep,
        "shards": degrees.dp_shard,
        "sharding": degrees.sharding.name.lower(),
        TRAINED: "part" if run.training.finetuning is not None else "all",
    }


def kinds_of_run(
    run: TrainingRun,
    architecture: Architecture,
    degrees: Degrees,
    profile: KernelProfile,
    compute_bytes: int,
) -> tuple[str, ...]:
    """Name the kinds of a run, by its settings that are known to be hard; the first decides most.

    A run without any is plain.
    """
    default = Loss[profile.loss.upper()]
    splits = profile.tensor_parallel_splits_logits
    decoder = architecture.stack is Stack.DECODER and architecture.head is Head.CAUSAL
    hard = {
        "frozen weights": run.training.finetuning is not None,
        "encoder": not decoder,
        "32-bit numbers": compute_bytes == WIDE and not is_autocast(run, degrees),
        "products in 8 bits": bool(run.training.fp8),
        "activations on the host": bool(run.training.offload_modules),
        "context parallel": degrees.cp > 1,
        "experts": bool(architecture.experts),
        # Measured with experts only, which come first.
        "latent attention": architecture.latent is not None,
        "further tokens predicted": architecture.prediction_layers > 0,
        "autocast": is_autocast(run, degrees),
        "another loss": run.training.loss not in (Loss.UNSPECIFIED, default),
        "selective recomputation": run.training.recompute is Recompute.SELECTIVE,
        "pipeline": degrees.pp > 1,
        "tensor parallel in transformers": degrees.tp > 1 and not splits,
        "DeepSpeed": degrees.sharding in _DEEPSPEED and degrees.dp_shard > 1,
        "sharded parameters": degrees.shards_parameters,
        "replicas": degrees.dp_replicate > 1 and not profile.gradients_persist,
    }
    return tuple(kind for kind, is_so in hard.items() if is_so) or (PLAIN,)
