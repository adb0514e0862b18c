"""Settings that change nothing beside a run's others: each is named, with what it would need.

A rule says of one setting when the memory model reads it. Rules are of combinations, not of sizes:
a bucket larger than every gradient is read, though another bucket would do as well. A setting that
asks for what runs anyway, such as an offload of nothing, is not named. Knows no bytes.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType

from haversack.finetuning import StoredWeights
from haversack.parallelism import Sharding
from haversack.plan import PlanRequest
from haversack.run import Occasion, Precision, Recompute, TrainingRun
from haversack.training import Loss, OffloadModule, RecomputeModule
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.chain import Chain
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.loss import kind_of
from haversack_server.memory.schedule.choose import Schedule, schedule_class
from haversack_server.memory.schedule.fsdp1 import Fsdp1
from haversack_server.memory.schedule.fsdp2 import Fsdp2
from haversack_server.memory.schedule.ideal import Ideal
from haversack_server.memory.schedule.zero import Zero
from haversack_server.memory.schedule.zero3 import Zero3
from haversack_server.memory.unused import asks

_FSDP = (Fsdp1, Fsdp2)
_DEEPSPEED = (Zero, Zero3)
_FILES = (Occasion.SAVING, Occasion.LOADING)
_WHOLE_NUMBERS = (StoredWeights.UNSPECIFIED, StoredWeights.COMPUTE)
# Apart, since numbers of one enumeration equal those of another.
_EXPERTS_AGAIN = (RecomputeModule.MOE, RecomputeModule.MOE_ACTIVATION)
_EXPERTS_AWAY = (OffloadModule.EXPERT_INPUT, OffloadModule.EXPERT_ACTIVATION)


@dataclass(frozen=True)
class At:
    """A run as it is laid out, for rules; ``model`` is None where none is described."""

    run: TrainingRun
    chain: Chain
    model: Architecture | None = None
    profile: KernelProfile | None = None

    @cached_property
    def schedule(self) -> Callable[[Chain], Schedule]:
        """The class of the schedule of gathers and reductions; making one takes longer."""
        return schedule_class(self.chain)

    @property
    def experts(self) -> int:
        """How many experts a layer has."""
        return self.model.experts if self.model else 0


Reads = Callable[[At], bool]


def _under(*schedules: type) -> Reads:
    return lambda at: at.schedule in schedules


def _several(axis: str) -> Reads:
    return lambda at: getattr(at.chain.degrees, axis) > 1


def _divides(at: At) -> bool:
    """Whether a sharding has ranks to divide states among, or decides something else."""
    degrees = at.chain.degrees
    if degrees.sharding is Sharding.DISTRIBUTED_OPTIMIZER and degrees.shard_ranks == 1:
        return _chooses_precision(at)
    whole = at.schedule not in (*_FSDP, *_DEEPSPEED, Ideal)
    return degrees.sharding is Sharding.REPLICATED or degrees.shard_ranks > 1 or not whole


def _chooses_precision(at: At) -> bool:
    training = at.run.training
    return training.precision is Precision.UNSPECIFIED and training.finetuning is None


def _has_buckets(at: At) -> bool:
    """DeepSpeed's; Megatron-LM's optimizer counts its collectives by them."""
    counts = at.model is not None and at.chain.degrees.shards_optimizer
    return at.schedule in _DEEPSPEED or (counts and at.schedule not in _FSDP)


def _has_views(at: At) -> bool:
    degrees = at.chain.degrees
    ddp = degrees.sharding is Sharding.REPLICATED and degrees.dp_replicate > 1
    return ddp and not at.chain.gradients_stand


def _keeps_unreduced(at: At) -> bool:
    return at.schedule in (*_FSDP, Ideal) and at.chain.accumulation > 1


def _is_on_host(at: At) -> bool:
    return bool(at.chain.states.host.total_bytes or at.run.training.offload_modules)


def _writes_files(at: At) -> bool:
    occasions = at.run.training.occasions
    return at.chain.degrees.shards_parameters and any(each in occasions for each in _FILES)


def _is_chunked(at: At) -> bool:
    if at.profile is None:
        return False
    return kind_of(at.profile, at.run.training.loss) in (Loss.CHUNKED, Loss.FUSED_LINEAR)


def _has_target(at: At) -> bool:
    return at.model is not None and at.model.encoder_layers > 0


def _runs_parts_again(at: At) -> bool:
    """A plan is put beside a run that does."""
    is_plan = isinstance(at.run, PlanRequest)
    return is_plan or at.run.training.recompute is Recompute.SELECTIVE


def _runs_layers_again(at: At) -> bool:
    return at.run.training.recompute is Recompute.FULL


def _has_adapters(at: At) -> bool:
    finetuning = at.run.training.finetuning
    return finetuning is not None and finetuning.rank is not None


def _has_frozen_head_in_fewer_bits(at: At) -> bool:
    finetuning = at.run.training.finetuning
    if finetuning is None or "head" in finetuning.trained_parts:
        return False
    return finetuning.frozen_weights not in _WHOLE_NUMBERS


# What a setting is read with, in words, and whether a run has it.
RULES: Mapping[str, tuple[str, Reads]] = MappingProxyType(
    {
        "parallelism.sequence_parallel": ("with tp above 1", _several("tp")),
        "parallelism.context_parallel": ("with cp above 1", _several("cp")),
        "parallelism.pipeline_schedule": ("with pp above 1", _several("pp")),
        "parallelism.stage_layers": ("with pp above 1", _several("pp")),
        "parallelism.expert_tp": ("for a model with experts", lambda at: at.experts > 0),
        "parallelism.expert_load_permille": ("with ep above 1", _several("ep")),
        "parallelism.expert_capacity_permille": ("with ep above 1", _several("ep")),
        "parallelism.sharding": ("with dp_shard x cp above 1", _divides),
        "parallelism.prefetch_units": ("under FSDP2", _under(Fsdp2, Ideal)),
        "parallelism.reshard_ranks": ("under FSDP2", _under(Fsdp2)),
        "parallelism.reshard_after_forward": ("under FSDP1 and FSDP2", _under(*_FSDP)),
        "parallelism.wrap": ("under FSDP1 and FSDP2", _under(*_FSDP)),
        "parallelism.layers_per_unit": ("under FSDP1 and FSDP2", _under(*_FSDP)),
        "parallelism.backward_prefetch": ("under FSDP1", _under(Fsdp1)),
        "parallelism.forward_prefetch": ("under FSDP1", _under(Fsdp1)),
        "parallelism.limit_all_gathers": ("under FSDP1", _under(Fsdp1)),
        "parallelism.reduce_bucket_elements": ("with states that ZeRO shards", _has_buckets),
        "parallelism.overlap_reduce": (
            "with gradients that ZERO_2 shards",
            lambda at: at.schedule is Zero and at.chain.degrees.sharding is not Sharding.ZERO_1,
        ),
        "parallelism.contiguous_gradients": (
            "with gradients that ZERO_2 or ZERO_3 shards",
            lambda at: (
                at.schedule in _DEEPSPEED and at.chain.degrees.sharding is not Sharding.ZERO_1
            ),
        ),
        "parallelism.prefetch_elements": ("with parameters that ZERO_3 shards", _under(Zero3)),
        "parallelism.max_live_elements": ("with parameters that ZERO_3 shards", _under(Zero3)),
        "parallelism.max_reuse_elements": ("with parameters that ZERO_3 shards", _under(Zero3)),
        "parallelism.persistent_elements": ("with parameters that ZERO_3 shards", _under(Zero3)),
        "parallelism.gradient_as_bucket_view": (
            "under DistributedDataParallel on several ranks",
            _has_views,
        ),
        "parallelism.pin_memory": (
            "with offload_optimizer or offload_parameters",
            lambda at: bool(at.chain.offload),
        ),
        "parallelism.ranks_per_node": ("with something kept on the host", _is_on_host),
        "training.no_sync": ("with gradients that FSDP shards and accumulation", _keeps_unreduced),
        "training.state_dict": (
            "with sharded parameters and the occasion SAVING or LOADING",
            _writes_files,
        ),
        "training.reduce_type": (
            "with gradients that FSDP or ZeRO shards",
            _under(*_FSDP, *_DEEPSPEED, Ideal),
        ),
        "training.optimizer_kernel": (
            "with an optimizer that steps on the device",
            lambda at: not at.chain.offload.optimizer,
        ),
        "training.loss_chunks": ("with the loss CHUNKED or FUSED_LINEAR", _is_chunked),
        "training.loss_parallel": ("with tp above 1", _several("tp")),
        "training.target_seq": ("for a model with an encoder and a decoder", _has_target),
        "training.fp8_parameters": ("with fp8", lambda at: bool(at.run.training.fp8)),
        "training.recompute_modules": ("with recompute SELECTIVE", _runs_parts_again),
        "training.recompute_method": ("with recompute FULL", _runs_layers_again),
        "training.recompute_layers": ("with recompute FULL", _runs_layers_again),
        "training.finetuning.adapter_dropout": ("with a rank of adapters", _has_adapters),
        "training.finetuning.adapter_in_fp32": ("with a rank of adapters", _has_adapters),
        "training.finetuning.head_quantized": (
            "with a frozen head, and frozen_weights in fewer bits",
            _has_frozen_head_in_fewer_bits,
        ),
    }
)
_OF_FINETUNING = "training.finetuning."
# Each with its name and a reader, made once: answers take less than a millisecond.
_READERS = tuple((path, path.rpartition(".")[2], attrgetter(path)) for path in RULES)
_WITHOUT_FINETUNING = tuple(each for each in _READERS if not each[0].startswith(_OF_FINETUNING))


def unread(at: At, *, of: Container[str] = RULES) -> Iterator[str]:
    """Name what was given and is not read, with what it would be read with.

    ``of`` are the paths of the settings that the subject uses at all.
    """
    tuned = at.run.training.finetuning is not None
    for path, name, value_of in _READERS if tuned else _WITHOUT_FINETUNING:
        if asks(name, value_of(at.run)) and path in of:
            words, is_read = RULES[path]
            if not is_read(at):
                yield f"{path}: read {words} only"
    yield from _unread_parts(at)


def _unread_parts(at: At) -> Iterator[str]:
    """Name the parts of a layer that the model does not have."""
    training, model = at.run.training, at.model
    if model is None:
        return
    again = training.recompute_modules if _runs_parts_again(at) else ()
    parts = [f"recompute_modules: {each.name}" for each in again if each in _EXPERTS_AGAIN]
    away = training.offload_modules
    parts += [f"offload_modules: {each.name}" for each in away if each in _EXPERTS_AWAY]
    for part in parts if not model.experts else ():
        yield f"training.{part} is read for a model with experts only"
    if RecomputeModule.LATENT_EXPANSION in again and model.latent is None:
        yield "training.recompute_modules: LATENT_EXPANSION is read with latent attention only"
