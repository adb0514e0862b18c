"""What selective recomputation of a layer keeps: a policy of the framework, by kernel profile.

Knows which operations a policy runs again, not what a layer is made of.
"""

from collections.abc import Sequence
from dataclasses import replace

from haversack.run import RecomputeModule
from haversack_server.memory.kernel_profile import KernelProfile, SelectivePolicy
from haversack_server.memory.regions import (
    CORE,
    EXPERT_ACTIVATION,
    EXPERTS,
    FEED_FORWARD,
    LATENT_UP,
    NORM,
    Region,
    scoped,
)
from haversack_server.memory.tape import Operation, OptionRow, Tape, measure, measure_regions

# Scope of each part, and whether Megatron-LM drops its result too (--recompute-modules:
# "layernorm", "moe_act" and "mla_up_proj" are output-discarding, the others are checkpoints).
_PARTS = {
    RecomputeModule.CORE_ATTENTION: (CORE, False),
    RecomputeModule.MLP: (FEED_FORWARD, False),
    RecomputeModule.LAYER_NORM: (NORM, True),
    RecomputeModule.MOE_ACTIVATION: (EXPERT_ACTIVATION, True),
    RecomputeModule.MOE: (EXPERTS, False),
    RecomputeModule.LATENT_EXPANSION: (LATENT_UP, True),
}


def selective(
    tape: Tape, profile: KernelProfile, modules: Sequence[RecomputeModule] = ()
) -> OptionRow:
    """Measure a layer of which ``modules`` run again, or what its framework's policy says."""
    if modules:
        return measure_regions(tape, regions_of(tape, modules), name="selective")
    if profile.selective_policy is SelectivePolicy.EVERY_SECOND_PRODUCT:
        return _every_second_product(tape)
    return measure(tape, save=True, recompute_scope=CORE)


def regions_of(tape: Tape, modules: Sequence[RecomputeModule]) -> tuple[Region, ...]:
    """Give the regions of the parts; what lies inside another part that runs again goes with it."""
    named = set(modules) or {RecomputeModule.CORE_ATTENTION}
    if RecomputeModule.MOE in named:
        named -= {RecomputeModule.MOE_ACTIVATION}
    parts = [_PARTS[module] for module in sorted(named)]
    return tuple(
        region
        for scope, drops in parts
        for region in scoped(tape.operations, scope, drops_result=drops)
    )


def _every_second_product(tape: Tape) -> OptionRow:
    """Keep the results of attention and of the first, third, ... product; run the rest again.

    Backward rebuilds the layer as after full recomputation, of which the kept results are a part.
    """
    products = [op for op in tape.operations if op.flops and op.scope != CORE]
    kept = [*products[::2], *(op for op in tape.operations if op.scope == CORE and op.flops)]
    results = {name for op in kept for name in op.writes} | {tape.output}
    full = measure(tape, save=False)
    retained = tape.size_of(frozenset(results))
    work = tuple(_again(tape, kept))
    return replace(
        full,
        name="selective",
        retained_bytes=retained,
        forward_peak_bytes=full.forward_peak_bytes - full.retained_bytes + retained,
        flops=sum(flops for flops, _ in work),
        moved_bytes=sum(moved for _, moved in work),
        work=work,
    )


def _again(tape: Tape, kept: list[Operation]) -> list[tuple[int, int]]:
    """FLOPs and bytes of what runs again."""
    spared = {op.name for op in kept}
    return [(op.flops, op.moved_bytes) for op in tape.operations if op.name not in spared]
