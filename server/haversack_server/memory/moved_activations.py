"""Activations on the host: what Megatron-LM moves there between a layer's forward and backward.

Of the parts that are named, what autograd keeps is copied to pinned memory once the part has run,
and back before its backward (--fine-grained-activation-offloading;
megatron/core/pipeline_parallel/fine_grained_activation_offload.py). Small tensors stay. So does the
last layer before the loss, for want of time: here that is a layer beside the head, if there is
one. One layer's bytes are taken to be on their way at any moment. Knows nothing of what stays for
other reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from haversack.parallelism import Sharding
from haversack.run import TrainingRun
from haversack.training import OffloadModule, Recompute
from haversack_server.memory import regions
from haversack_server.memory.kernel_profile import DEFAULT
from haversack_server.memory.pipeline import Chunk, passes
from haversack_server.memory.regions import CORE, EXPERT_ACTIVATION, LATENT_UP, NORM, Region

if TYPE_CHECKING:
    from haversack_server.memory.blocks import Shape
    from haversack_server.memory.chain import Chain
    from haversack_server.memory.options import BlockOptions
    from haversack_server.memory.tape import Operation, OptionRow, Tape

LEAST_ELEMENTS = 2**20  # min_offloaded_tensor_size
PROFILES = ("megatron-te", "megatron-local")
_PROJECTIONS = (
    "query, key, value",
    "query, compressed",
    "key and value, compressed",
    "query @",
    "key and value @",
)


def moved(
    tape: "Tape",
    row: "OptionRow",
    parts: Sequence[Region],
    shape: "Shape",
) -> "OptionRow":
    """Take what goes to the host out of what an option of a layer retains; ``parts`` run again.

    A layer's first norm takes the output of the layer before, so the layer's own output goes for
    the norm after it.
    """
    modules = shape.offload_modules
    kept = regions.kept(tape.operations, parts)
    taken = {name for op in _chosen(tape, modules) for name in (*op.saves, *op.holds)} & kept
    taken.discard(tape.input)
    if OffloadModule.ATTENTION_NORM in modules:
        taken.add(tape.output)
    least = LEAST_ELEMENTS * shape.compute_bytes
    large = {name for name in taken if tape.storages[name].size_bytes >= least}
    size_bytes = tape.size_of(large)
    return replace(
        row,
        retained_bytes=row.retained_bytes - size_bytes,
        keeps_input=row.keeps_input and OffloadModule.ATTENTION_NORM not in modules,
        output_only_bytes=0 if tape.output in large else row.output_only_bytes,
        host_bytes=size_bytes,
    )


def _chosen(tape: "Tape", modules: Sequence[OffloadModule]) -> list["Operation"]:
    """Find the operations of the parts; the first norm is attention's, the second the other's."""
    norms = [op.name for op in tape.operations if op.scope == NORM and op.writes]
    first, later = set(norms[:1]), set(norms[1:])
    named: Mapping[OffloadModule, Callable[[Operation], bool]] = {
        OffloadModule.ATTENTION_NORM: lambda op: op.name in first,
        OffloadModule.FEED_FORWARD_NORM: lambda op: op.name in later,
        OffloadModule.QUERY_KEY_VALUE: lambda op: (
            op.scope == LATENT_UP or op.name.startswith(_PROJECTIONS)
        ),
        OffloadModule.CORE_ATTENTION: lambda op: op.scope == CORE,
        OffloadModule.ATTENTION_OUTPUT: lambda op: op.name.startswith("attention output"),
        OffloadModule.EXPERT_INPUT: lambda op: op.name.startswith("expert in"),
        OffloadModule.EXPERT_ACTIVATION: lambda op: op.scope == EXPERT_ACTIVATION,
    }
    return [op for op in tape.operations if any(named[each](op) for each in modules)]


def on_the_way(table: "Sequence[BlockOptions]") -> int:
    """Bytes of one layer, the one that moves most, which come or go beside the running one."""
    return max(option.host_bytes for block in table for option in block.options)


def on_host(chain: "Chain", choice: Sequence[int]) -> int:
    """Count the bytes that wait there at most, of all microbatches in flight."""
    if not chain.on_the_way_bytes:
        return 0
    pairs = zip(chain.blocks, choice, strict=True)
    moved_bytes = [block.options[index].host_bytes for block, index in pairs]
    nothing = [0] * (len(moved_bytes) + 1)
    pipeline = replace(chain.pipeline, chunks=tuple(map(_bare, chain.pipeline.chunks)))
    found = passes(pipeline, moved_bytes, nothing, chain.accumulation, step=2)
    return max(each.in_flight_bytes + sum(moved_bytes[each.start : each.stop]) for each in found)


def _bare(chunk: Chunk) -> Chunk:
    """Leave out what a chunk receives, sends and parks, which stays on the device."""
    return Chunk(start=chunk.start, stop=chunk.stop)


def unmodelled_moves(run: TrainingRun) -> Mapping[str, bool]:
    """Name what is not known of activations on the host."""
    training = run.training
    if not training.offload_modules:
        return {}
    profile = run.kernel_profile or DEFAULT
    return {
        f"offload_modules under the kernel profile {profile}": profile not in PROFILES,
        "offload_modules with full recomputation": training.recompute is Recompute.FULL,
        "offload_modules with sharded parameters": run.parallelism.sharding
        in (Sharding.FSDP1, Sharding.FSDP2, Sharding.ZERO_3),
        "offload_modules with actions": bool(training.actions),
    }
