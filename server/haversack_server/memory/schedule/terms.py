"""The buffers of a schedule in words: what each column holds, by which framework, and why.

Knows no numbers of its own; what it prints are the settings and the largest unit.
"""

from dataclasses import replace

from haversack.estimate import Term, TermCategory
from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain
from haversack_server.memory.ledger import NAMES
from haversack_server.memory.moments import Column
from haversack_server.memory.schedule.wrapping import root_unit, wrap_units

_SAME = "; more GPUs do not shrink it"
_SOURCES = {
    Sharding.FSDP1: "PyTorch FullyShardedDataParallel, _flat_param.py (torch 2.13.0)",
    Sharding.FSDP2: "PyTorch fully_shard, as its memory tracker shows it (torch 2.13.0)",
    Sharding.ZERO_1: "DeepSpeed, runtime/zero/stage_1_and_2.py",
    Sharding.ZERO_2: "DeepSpeed, runtime/zero/stage_1_and_2.py",
    Sharding.ZERO_3: "DeepSpeed, runtime/zero/stage3.py and partitioned_param_coordinator.py",
    Sharding.REPLICATED: "PyTorch DistributedDataParallel without gradient_as_bucket_view",
    Sharding.DISTRIBUTED_OPTIMIZER: "Megatron-LM, distributed/param_and_grad_buffer.py",
}
_COPIES = {
    Sharding.FSDP2: "all-gather buffers: of the unit that runs until the next has its own, and of "
    "units gathered ahead",
    Sharding.ZERO_3: "the flat buffer that a module's parameters arrive in, or what is fetched "
    "ahead",
}
_REDUCTIONS = {
    Sharding.FSDP1: "gradients of a unit cast for their reduction, and its result",
    Sharding.FSDP2: "the input of the unit's reduction, kept until the next reduction, and its "
    "result",
    Sharding.ZERO_1: "reduce buckets during backward, at their full size",
    Sharding.ZERO_2: "reduce buckets during backward, at their full size",
    Sharding.ZERO_3: "the reduce bucket from the start, and its gradients flattened in backward",
    Sharding.REPLICATED: "buckets from the start, a second copy of the gradients; from step 2 on a "
    "third, since buckets are rebuilt and the first ones stay",
}
_WHOLE_GRADIENTS = {
    Sharding.FSDP1: "gradients of the running unit, and of its flat parameter, until reduced",
    Sharding.FSDP2: "gradients of the running unit until reduced, and the root unit's to the end",
}


def transient_terms(chain: Chain) -> dict[Column, Term]:
    """Describe what units take while they are gathered and reduced."""
    base = _base(chain)
    sharding = chain.degrees.sharding
    compute, reduce = chain.recipe.compute, chain.recipe.reduce
    if sharding is Sharding.REPLICATED:  # its buckets hold gradients as they are
        reduce = chain.recipe.gradient
    gathered = "parameters of the running unit, of the root unit and of units that stay gathered"
    copies = _COPIES.get(sharding, "parameters of units gathered ahead")
    whole = _WHOLE_GRADIENTS.get(sharding, "the gradient of one parameter, until it is reduced")
    reduction = _REDUCTIONS.get(sharding, "reduce buffers")
    return {
        Column.GATHERED: _named(base, Column.GATHERED, gathered, compute),
        Column.PREFETCHED: _named(base, Column.PREFETCHED, copies, compute),
        Column.UNSHARDED_GRADIENTS: replace(
            _named(base, Column.UNSHARDED_GRADIENTS, whole, compute), gathered_in=("backward",)
        ),
        Column.REDUCE: replace(
            _named(base, Column.REDUCE, reduction, reduce),
            inputs=_bucket_inputs(chain) or base.inputs,
            gathered_in=(),
        ),
        Column.ALL_REDUCE: replace(
            base,
            name=NAMES[Column.ALL_REDUCE],
            formula=(
                f"one shard of each unit reduced so far x {reduce} bytes, kept to the end of "
                "backward while replicas sum it"
            ),
            sharded_over=(chain.degrees.shard_axis,),
            gathered_in=(),
        ),
    }


def _base(chain: Chain) -> Term:
    """What all have alike."""
    units = wrap_units(chain)
    root = root_unit(chain)
    largest = max((unit.whole for unit in units), default=root.whole if root else 0)
    inputs = [f"parameters of the largest unit = {largest}"]
    if root is not None:
        inputs.append(f"parameters of the root unit = {root.whole}")
    return Term(
        name="",
        category=TermCategory.TRANSIENT,
        inputs=tuple(inputs),
        source=_SOURCES.get(chain.degrees.sharding, ""),
        scales_with=("parameters of a unit",),
        gathered_in=("forward", "backward"),
    )


def _named(base: Term, column: Column, what: str, each: int) -> Term:
    return replace(base, name=NAMES[column], formula=f"{what} x {each} bytes{_SAME}")


def _bucket_inputs(chain: Chain) -> tuple[str, ...]:
    """The bucket's size, where there is one."""
    sharding, settings = chain.degrees.sharding, chain.schedule
    if sharding not in (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3):
        return ()
    if settings.idealised and chain.degrees.shards_parameters:
        return ()
    buckets = 2 if settings.overlap_reduce and sharding is Sharding.ZERO_2 else 1
    return (
        f"elements of a bucket = {settings.reduce_bucket_elements}",
        f"buckets = {buckets}",
    )
