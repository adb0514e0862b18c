"""Settings that a subject does not use: they are named in the answer, never dropped in silence.

Those that it uses and that change nothing beside the others of one run are in ``unread``.
"""

from collections.abc import Set
from dataclasses import fields

from haversack.run import TrainingRun
from haversack_server.memory.variations import is_set

# Training settings that a subject uses, from the least that is known of it to the most.
RECIPE = frozenset({"precision", "optimizer"})
_STEP = {"accumulation", "no_sync", "occasions", "state_dict", "reduce_type", "optimizer_kernel"}
TIMELINE = RECIPE | _STEP
# The same of parallelism.
AXES = frozenset(
    {"world_size", "dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "sharding"},
)
HOST = AXES | {"offload_optimizer", "offload_parameters", "pin_memory", "ranks_per_node"}
_BUCKETS = {"reduce_bucket_elements", "overlap_reduce", "contiguous_gradients"}
WINDOWS = HOST | _BUCKETS | {"prefetch_units", "gradient_as_bucket_view"}

_OFF_COUNTS = frozenset(
    {"reshard_after_forward", "limit_all_gathers", "contiguous_gradients"}
    | {"prefetch_elements", "max_live_elements", "max_reuse_elements", "persistent_elements"}
)
_IN_PARTS = frozenset({"expert_tp", "layers_per_unit", "virtual_stages"})  # of which 1 is usual


def asks(name: str, value: object) -> bool:
    """Whether a setting asks for anything; what is off, or in 1 part, is so without it.

    Of what is on unless it is turned off, no and 0 ask for something too.
    """
    if not value:
        return value is not None and name in _OFF_COUNTS and is_set(value)
    return not (value == 1 and name in _IN_PARTS)


def unused(
    run: TrainingRun, *, training: Set[str], parallelism: Set[str], device: bool = True
) -> tuple[str, ...]:
    """Name the settings that were given and that the subject does not use.

    ``training`` and ``parallelism`` are the settings of these that it uses; ``device`` says whether
    it uses those of the device.
    """
    paths = _given("training", run.training, training)
    paths += _given("parallelism", run.parallelism, parallelism)
    if not device:
        paths += _given("device", run.device, frozenset())
    if run.kernel_profile:
        paths.append("kernel_profile")
    return tuple(f"{path}: not used for this subject" for path in paths)


def beside_budget(run: TrainingRun) -> tuple[str, ...]:
    """Name the device's memory where a budget is given too; that of a device's name is none."""
    both = run.budget is not None and run.device.memory_bytes is not None
    return ("device.memory_bytes: the budget is judged instead",) if both else ()


def _given(path: str, noun: object, used: Set[str]) -> list[str]:
    names = [field.name for field in fields(noun)]  # type: ignore[arg-type]
    return [
        f"{path}.{name}" for name in names if name not in used and asks(name, getattr(noun, name))
    ]
