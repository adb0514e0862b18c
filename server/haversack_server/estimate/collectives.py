"""The collectives of an optimizer step on one rank: how many, and how many bytes the rank sends.

By a ring over n ranks, of S bytes in all, an all-gather or a reduce-scatter sends S (n-1)/n from
each rank, an all-reduce twice that (Thakur, Rabenseifner, Gropp 2005; PERFORMANCE.md of NCCL-tests
has the same factors). What is gathered and reduced when is read in the ZeRO paper (SC20, section
7), in Megatron-LM (arXiv 1909.08053, section 3) and in its sequence parallelism (arXiv 2205.05198,
section 4.2). Small ones are left out: gradients of norms, the loss, the clipping of gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from haversack.parallelism import ContextParallel, Sharding
from haversack.questions import Collective, CollectiveKind
from haversack.run import Training
from haversack.units import MIB
from haversack_server.estimate.stage import Stage
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.model_run import ModelRun

_ZERO = "ZeRO paper (SC20), section 7"
_FSDP = "PyTorch fully_shard: gathered before forward and before backward, reduced after backward"
_DDP = "PyTorch DistributedDataParallel: buckets of 25 MiB"
_TENSOR = "Megatron-LM (arXiv 1909.08053), section 3"
_SEQUENCE = "Korthikanti et al. (arXiv 2205.05198), section 4.2"
_PIPELINE = "Narayanan et al. (arXiv 2104.04473), section 2.2"
_EXPERTS = "GShard (arXiv 2006.16668), section 3.2"
DDP_BUCKET_BYTES = 25 * MIB
RING_FACTORS = {
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.ALL_TO_ALL: 1,
}


def collectives(run: ModelRun, training: Training) -> tuple[Collective, ...]:
    """List the collectives of a step, those of sharding first; none on one rank.

    Of the stages of a pipeline it is the one whose ranks send the most.
    """
    stages = (_of_stage(Stage(run, chain, training)) for chain in run.stages)
    return max(stages, key=sent_bytes, default=())


def recompute_ns(run: ModelRun, training: Training) -> int:
    """Sum the time that a step recomputes, by the roofline; of stages, the longest."""
    stages = [Stage(run, chain, training) for chain in run.stages]
    return max((stage.recompute_ns for stage in stages), default=0)


def sent_bytes(listed: Sequence[Collective]) -> int:
    """Sum what a rank sends."""
    return sum(each.bytes_per_rank for each in listed)


def _of_stage(stage: Stage) -> tuple[Collective, ...]:
    found = (
        *_of_parameters(stage),
        *_of_gradients(stage),
        *_of_tensors(stage),
        *_of_context(stage),
        *_of_experts(stage),
        *_between_stages(stage),
    )
    return tuple(each for each in found if each.bytes_per_rank)


@dataclass(frozen=True, slots=True)
class _Ring:
    """Ranks along an axis, and what they do together."""

    axis: str
    ranks: int

    def over(
        self, name: str, kind: CollectiveKind, *, count: int, whole: int, of: str, source: str
    ) -> Collective:
        """Make the collective of ``whole`` bytes in all calls; ``of`` says what they are."""
        factor = RING_FACTORS[kind]
        times = "" if factor == 1 else f"{factor} x "
        return Collective(
            name=name,
            kind=kind,
            axis=f"{self.axis}={self.ranks}",
            count=count,
            bytes_per_rank=factor * whole * (self.ranks - 1) // self.ranks,
            formula=f"{times}{of} x {self.ranks - 1}/{self.ranks}",
            source=source,
        )


def _of_parameters(stage: Stage) -> Iterator[Collective]:
    """Gather parameters: each unit to run it, or the whole model after it was updated."""
    chain, degrees = stage.chain, stage.run.degrees
    shards = _shards(degrees)
    if degrees.shards_parameters:
        # A root unit, and every unit that is not freed after its forward, is gathered once.
        fsdp = degrees.sharding in (Sharding.FSDP1, Sharding.FSDP2)
        stays = fsdp and not chain.schedule.reshard_after_forward
        passes = [1 if block.root or stays else 2 for block in chain.blocks]
        wholes = [block.unit.whole for block in chain.blocks]
        elements = sum(unit * often for unit, often in zip(wholes, passes, strict=True))
        yield shards.over(
            "parameters of units",
            CollectiveKind.ALL_GATHER,
            count=sum(passes) * chain.accumulation,
            whole=elements * chain.recipe.compute * chain.accumulation,
            of="parameters of every unit x bytes of the compute type, in forward and, where units "
            "are freed after it, in backward of every microbatch",
            source=_sharding_source(degrees.sharding),
        )
    elif degrees.shards_optimizer:
        whole = stage.elements * chain.recipe.parameter
        yield shards.over(
            "updated parameters",
            CollectiveKind.ALL_GATHER,
            count=stage.buckets,
            whole=whole,
            of="parameters x their bytes, once an optimizer step",
            source=_ZERO,
        )


def _of_gradients(stage: Stage) -> Iterator[Collective]:
    """Reduce gradients: into shards, then among the replicas of a shard."""
    chain, degrees = stage.chain, stage.run.degrees
    sharded = degrees.shards_optimizer
    # Whole gradients add up in place, and are reduced once: no_sync, or a boundary of ZeRO 1.
    each_time = degrees.shards_gradients and not chain.schedule.no_sync
    times = chain.accumulation if each_time else 1
    often = "in every microbatch" if each_time else "once an optimizer step"
    width = chain.recipe.reduce if degrees.shards_parameters else chain.recipe.gradient
    whole = stage.elements * width
    units = len(chain.blocks) if degrees.shards_parameters else stage.buckets
    if sharded:
        yield _shards(degrees).over(
            "gradients",
            CollectiveKind.REDUCE_SCATTER,
            count=units * times,
            whole=whole * times,
            of=f"gradients x their bytes, {often}",
            source=_sharding_source(degrees.sharding),
        )
        whole = -(-whole // degrees.shard_ranks)
    # Context-parallel ranks hold the same weights: they shard with the others, or replicate.
    replicas = degrees.dp_replicate * (1 if sharded else degrees.cp)
    if replicas > 1:
        count = units if sharded else -(-whole // DDP_BUCKET_BYTES)
        of = "shard of the gradients" if sharded else "gradients"
        yield _Ring("dp_replicate", replicas).over(
            f"{of}, among replicas",
            CollectiveKind.ALL_REDUCE,
            count=count * times,
            whole=whole * times,
            of=f"{of} x their bytes, {often}",
            source=_sharding_source(degrees.sharding) if sharded else _DDP,
        )


def _of_tensors(stage: Stage) -> Iterator[Collective]:
    """Tensor parallelism: the residual stream is summed twice in each layer's forward, twice back.

    Under sequence parallelism each sum is a reduce-scatter, with the all-gather before the next
    products. A recomputed layer runs its forward's collectives again.
    """
    run, degrees = stage.run, stage.run.degrees
    if degrees.tp == 1:
        return
    ring = _Ring("tp", degrees.tp)
    count = 2 * stage.layer_passes
    stream = run.shape.rows * run.architecture.hidden * run.shape.compute_bytes
    of = "tokens x hidden x bytes of the compute type, twice in each pass of each layer"
    kinds = [CollectiveKind.ALL_REDUCE]
    source = _TENSOR
    if degrees.sequence_parallel:
        kinds, source = [CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER], _SEQUENCE
    for kind in kinds:
        yield ring.over(
            "residual stream", kind, count=count, whole=count * stream, of=of, source=source
        )
    if stage.chain.blocks[-1].is_head and not run.shape.splits_logits(run.profile):
        logits = run.shape.rows * run.architecture.vocab * run.shape.compute_bytes
        yield ring.over(
            "logits",
            CollectiveKind.ALL_GATHER,
            count=stage.chain.accumulation,
            whole=logits * stage.chain.accumulation,
            of="logits x bytes of the compute type",
            source=run.profile.constant("tensor_parallel_splits_logits").source,
        )


def _of_context(stage: Stage) -> Iterator[Collective]:
    """Context parallelism: every rank sees the keys and values of all, and their gradients.

    A ring sends to the neighbours what an all-gather would bring: the bytes are equal.
    """
    run, degrees, model = stage.run, stage.run.degrees, stage.run.architecture
    if degrees.cp == 1:
        return
    heads = max(1, model.kv_heads // degrees.tp)
    row = model.head_dim * run.shape.compute_bytes
    ring = _Ring("cp", degrees.cp)
    if run.shape.context_parallel is ContextParallel.ALL_TO_ALL:
        # Queries, keys, values and the output trade heads for tokens.
        each = run.shape.rows * row * 2 * (heads + max(1, model.heads // degrees.tp))
        yield ring.over(
            "queries, keys, values and outputs",
            CollectiveKind.ALL_TO_ALL,
            count=4 * stage.layer_passes,
            whole=each * stage.layer_passes,
            of="their bytes on a rank, in each pass of each layer",
            source="DeepSpeed-Ulysses (arXiv 2309.14509), section 3.2",
        )
        return
    whole = 2 * run.shape.rows * degrees.cp * heads * row
    yield ring.over(
        "keys and values, or their gradients",
        CollectiveKind.ALL_GATHER,
        count=2 * stage.layer_passes,
        whole=whole * stage.layer_passes,
        of="keys and values of the whole sequence, in each pass of each layer",
        source="Ring attention (arXiv 2310.01889), section 3",
    )


def _of_experts(stage: Stage) -> Iterator[Collective]:
    """Expert parallelism: tokens go to their experts and come back, in forward and in backward."""
    run, degrees, model = stage.run, stage.run.degrees, stage.run.architecture
    if degrees.ep == 1 or not model.experts:
        return
    count = 2 * stage.layer_passes
    tokens = run.shape.rows * model.experts_per_token * model.hidden * run.shape.compute_bytes
    yield _Ring("ep", degrees.ep).over(
        "tokens to experts and back",
        CollectiveKind.ALL_TO_ALL,
        count=count,
        whole=count * tokens,
        of="tokens x experts per token x hidden x bytes of the compute type, there and back, if "
        "tokens are spread evenly",
        source=_EXPERTS,
    )


def _between_stages(stage: Stage) -> Iterator[Collective]:
    """Pipeline stages: a middle stage sends activations on and gradients back."""
    run, degrees = stage.run, stage.run.degrees
    if degrees.pp == 1:
        return
    stream = run.shape.stream_rows * run.architecture.hidden * run.shape.compute_bytes
    ways = 1 if degrees.pp == 2 else 2
    yield Collective(
        name="activations and their gradients between stages",
        kind=CollectiveKind.SEND,
        axis=f"pp={degrees.pp}",
        count=ways * stage.chain.accumulation,
        bytes_per_rank=ways * stage.chain.accumulation * stream,
        formula="tokens x hidden x bytes of the compute type, on and back in every microbatch",
        source=_PIPELINE,
    )


def _shards(degrees: Degrees) -> _Ring:
    axis = "dp_shard" if degrees.cp == 1 else "dp_shard x cp"
    return _Ring(axis, degrees.shard_ranks)


def _sharding_source(sharding: Sharding) -> str:
    return _FSDP if sharding in (Sharding.FSDP1, Sharding.FSDP2) else _ZERO
