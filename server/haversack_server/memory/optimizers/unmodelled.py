"""Optimizers that meet a sharding or a subject for which their state is not known."""

from collections.abc import Mapping

from haversack.parallelism import Sharding
from haversack.run import Optimizer, TrainingRun
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.optimizers.kinds import KINDS, Form, Kind


def unmodelled_optimizer(run: TrainingRun, degrees: Degrees) -> Mapping[str, bool]:
    """Name what is in use and not known, each with whether it is."""
    optimizer = run.training.optimizer or Optimizer.ADAMW
    kind, parallelism = KINDS[optimizer], run.parallelism
    name = f"optimizer={optimizer.name.lower()}"
    offloads = bool(parallelism.offload_optimizer or parallelism.offload_parameters)
    return {
        f"{name} of a subject without tensors": kind.needs_shapes
        and not run.subjects()["documents"],
        # PyTorch's fails there (torch 2.13.0: aten.pow_ on a partial norm), transformers' too.
        f"{name} on FSDP2's sharded tensors": kind.form is Form.FACTORED
        and degrees.sharding is Sharding.FSDP2,
        f"{name} with a step on the host": offloads and _runs_on_devices_only(kind),
        "offload_optimizer of states of which only bytes are known": offloads
        and run.state_bytes is not None,
        f"optimizer_in_backward with {degrees.sharding.name.lower()}": bool(
            run.training.optimizer_in_backward
        )
        and not _takes_hooks(run, degrees),
    }


def _runs_on_devices_only(kind: Kind) -> bool:
    """bitsandbytes has no kernels of its 8-bit and paged optimizers on the host."""
    return kind.paged or kind.form is Form.BLOCKS


def _takes_hooks(run: TrainingRun, degrees: Degrees) -> bool:
    """Tell where each gradient may be used up as it is made: FSDP2, or a rank by itself."""
    if not run.subjects()["documents"] or degrees.pp > 1:
        return False
    alone = degrees.world_size == 1 and not run.kernel_profile.startswith("megatron")
    return degrees.sharding is Sharding.FSDP2 or (alone and degrees.sharding is Sharding.REPLICATED)
