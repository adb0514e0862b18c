"""Where autocast is modelled: what was measured, and by name what was not.

Knows settings and families; what autocast does is the tapes' to know.
"""

from collections.abc import Mapping

from haversack.parallelism import Sharding
from haversack.run import Loss, Precision, Recompute, TrainingRun
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.degrees import Degrees

# Families whose layers under autocast were compared with the real ones, op by op
# (tests/integration/test_autocast_against_torch.py).
MEASURED_FAMILIES = frozenset(
    {
        "bert",
        "gemma",
        "gpt2",
        "gpt_neox",
        "granite",
        "llama",
        "mistral",
        "olmo",
        "opt",
        "phi",
        "qwen2",
        "qwen3",
        "roberta",
        "smollm3",
        "stablelm",
        "starcoder2",
    }
)
_CASTING = (Sharding.FSDP1, Sharding.FSDP2)
_LOSSES = (Loss.UNSPECIFIED, Loss.FP32)


def is_autocast(run: TrainingRun, degrees: Degrees) -> bool:
    """Whether fp32 parameters are computed with in 2 bytes by autocast, not by a sharding."""
    asked = run.training.precision is Precision.FP32_BF16_COMPUTE
    return asked and degrees.sharding not in _CASTING


def unmodelled_under_autocast(run: TrainingRun, degrees: Degrees) -> Mapping[str, bool]:
    """Name the settings of a run under autocast that are not known; () without autocast."""
    if not is_autocast(run, degrees):
        return {}
    training = run.training
    partly = training.recompute is Recompute.SELECTIVE or bool(training.recompute_modules)
    chosen = any(action.option == "selective" for action in training.actions)
    axes = ("tp", "pp", "cp", "ep")
    return {
        f"autocast with {degrees.sharding.name}": degrees.sharding is not Sharding.REPLICATED,
        **{f"autocast with {axis}": getattr(degrees, axis) > 1 for axis in axes},
        "autocast with selective recomputation": partly or chosen,
        "autocast with frozen weights": training.finetuning is not None,
        f"autocast with loss={training.loss.name}": training.loss not in _LOSSES,
        f"autocast under {run.kernel_profile}": not runs_eagerly(run.kernel_profile),
    }


def unmodelled_family(model: Architecture) -> Mapping[str, bool]:
    """Name a family that was not measured under autocast."""
    known = model.family in MEASURED_FAMILIES and not model.experts
    return {f"autocast over layers of {model.family}": not known}


def runs_eagerly(kernel_profile: str) -> bool:
    """Whether the kernels are those of transformers in eager PyTorch, as the measured ones."""
    return kernel_profile in ("", "hf-eager", "hf-cpu")
