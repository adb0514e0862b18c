"""How a sharding schedule is set, every setting filled in; what was filled in is an assumption.

Defaults are those of the framework that a schedule is named after: PyTorch 2.13 for FSDP1, FSDP2
and DistributedDataParallel, DeepSpeed's documented configuration for ZeRO.
"""

from dataclasses import dataclass

from haversack.parallelism import BackwardPrefetch, Parallelism, Sharding
from haversack.run import Occasion, StateDict, Training

REDUCE_BUCKET_ELEMENTS = 500_000_000  # DeepSpeed zero_optimization.reduce_bucket_size
PREFETCH_ELEMENTS = 50_000_000  # stage3_prefetch_bucket_size
MAX_LIVE_ELEMENTS = 1_000_000_000  # stage3_max_live_parameters
MAX_REUSE_ELEMENTS = 1_000_000_000  # stage3_max_reuse_distance
PERSISTENT_ELEMENTS = 100_000  # stage3_param_persistence_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Settings of every schedule; each reads its own.

    ``prefetch_units`` are gathered ahead on top of what the schedule does by itself;
    ``reshard_ranks`` is 0 unless units are resharded to so many ranks after forward.
    ``idealised``: units alone are known, so windows are drawn without any framework's buffers.
    """

    prefetch_units: int = 0
    reshard_after_forward: bool = True
    reshard_ranks: int = 0
    no_sync: bool = False
    idealised: bool = False
    backward_prefetch: BackwardPrefetch = BackwardPrefetch.PRE
    reduce_bucket_elements: int = REDUCE_BUCKET_ELEMENTS
    overlap_reduce: bool = False
    contiguous_gradients: bool = True
    prefetch_elements: int = PREFETCH_ELEMENTS
    max_live_elements: int = MAX_LIVE_ELEMENTS
    max_reuse_elements: int = MAX_REUSE_ELEMENTS
    persistent_elements: int = PERSISTENT_ELEMENTS
    gradient_as_bucket_view: bool = False
    occasions: tuple[Occasion, ...] = ()
    full_state_dict: bool = False
    updates_in_backward: bool = False


def schedule_settings(parallelism: Parallelism, training: Training) -> ScheduleSettings:
    """Fill in what was not given."""
    given = parallelism
    reshard = given.reshard_after_forward
    overlap = given.overlap_reduce
    return ScheduleSettings(
        prefetch_units=given.prefetch_units or 0,
        reshard_after_forward=True if reshard is None else reshard,
        reshard_ranks=given.reshard_ranks or 0,
        no_sync=bool(training.no_sync),
        backward_prefetch=given.backward_prefetch or BackwardPrefetch.PRE,
        reduce_bucket_elements=given.reduce_bucket_elements or REDUCE_BUCKET_ELEMENTS,
        # DeepSpeed overlaps by default in stage 3 alone.
        overlap_reduce=given.sharding is Sharding.ZERO_3 if overlap is None else overlap,
        contiguous_gradients=given.contiguous_gradients is not False,
        prefetch_elements=_or(given.prefetch_elements, PREFETCH_ELEMENTS),
        max_live_elements=_or(given.max_live_elements, MAX_LIVE_ELEMENTS),
        max_reuse_elements=_or(given.max_reuse_elements, MAX_REUSE_ELEMENTS),
        persistent_elements=_or(given.persistent_elements, PERSISTENT_ELEMENTS),
        gradient_as_bucket_view=bool(given.gradient_as_bucket_view),
        occasions=training.occasions,
        full_state_dict=training.state_dict is StateDict.FULL,
        updates_in_backward=bool(training.optimizer_in_backward),
    )


def _or(given: int | None, default: int) -> int:
    """Keep a 0 that was given."""
    return default if given is None else given
