"""The options of devices: how many, how large, and how a run is divided among them."""

from haversack.cli.option_types import Decorated, Whole, YesNoOrWhole, option

_AXES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
_BESIDE: dict[str, str] = {
    "pp": "; plans of a profile are for 1",
    "ep": "; the activations of experts do not shrink with it",
}

_SHARDING = [
    option(
        "Devices",
        "--zero",
        field="parallelism.sharding",
        about="ZeRO stage, 0 to 3, as in the paper: bf16 parameters and gradients, fp32 master "
        "copy and moments. Default: 0.",
        type=Whole(),
        metavar="STAGE",
    ),
    option(
        "Devices",
        "--fsdp",
        field="parallelism.sharding",
        about="FSDP2 (fully_shard): fp32 shards, units gathered in bf16, or in a profile's own "
        "types. Not with --zero.",
        is_flag=True,
    ),
]

_DEGREES = [
    *(
        option(
            "Devices",
            f"--{axis}",
            field=f"parallelism.{axis}",
            about=f"Degree of {kind} parallelism{_BESIDE.get(axis, '')}. Default: 1.",
            type=Whole(),
        )
        for axis, kind in _AXES.items()
    ),
    option(
        "Devices",
        "--virtual-stages",
        field="parallelism.virtual_stages",
        about="Chunks of layers on each pipeline stage, interleaved 1F1B. Default: 1.",
        type=Whole(),
    ),
    option(
        "Devices",
        "--expert-tp",
        field="parallelism.expert_tp",
        about="Degree of tensor parallelism inside experts. Default: as --tp.",
        type=Whole(),
    ),
    option(
        "Devices",
        "--sequence-parallel",
        field="parallelism.sequence_parallel",
        about="Split norms and residuals over the tensor-parallel ranks too.",
        is_flag=True,
        default=None,
    ),
    option(
        "Devices",
        "--dp-replicate",
        field="parallelism.dp_replicate",
        about="Degree of replicated data parallelism. Default: what follows from the others.",
        type=Whole(),
    ),
]

_HOST = [
    option(
        "Devices",
        "--offload",
        field="parallelism.offload_optimizer parallelism.offload_parameters",
        about="What lives on the host: optimizer (its state and its step; ZeRO 1 to 3), all "
        "(parameters too; ZeRO 3, FSDP) or none. Default: none.",
        metavar="NAME",
    ),
    option(
        "Devices",
        "--ranks-per-node",
        field="parallelism.ranks_per_node",
        about="Ranks that share the memory of one host. Default: 8.",
        type=Whole(),
    ),
]


_WRAPPING = [
    option(
        "Devices",
        "--reshard-after-forward",
        field="parallelism.reshard_after_forward parallelism.reshard_ranks",
        about="Whether FSDP2 frees its units after their forward, or to how many ranks it reshards "
        "them then. Default: yes, all but the root.",
        type=YesNoOrWhole(),
    ),
    option(
        "Devices",
        "--gradient-as-bucket-view",
        field="parallelism.gradient_as_bucket_view",
        about="Gradients of DistributedDataParallel are views of its buckets.",
        is_flag=True,
        default=None,
    ),
]


def devices(*, memory: str, prefetch: str) -> list[Decorated]:
    """Make the options of devices; what two of them mean depends on the question."""
    return [
        *_gpus(memory),
        *_SHARDING,
        *_DEGREES,
        *_HOST,
        option(
            "Devices",
            "--prefetch-units",
            field="parallelism.prefetch_units",
            about=f"Units gathered ahead of the one that runs. Default: {prefetch}.",
            type=Whole(),
        ),
        *_WRAPPING,
    ]


def _gpus(memory: str) -> list[Decorated]:
    """Make the options of the cards; ``memory`` ends the sentence on their usable bytes."""
    return [
        option(
            "Devices",
            "--gpus",
            field="parallelism.world_size",
            about="Number of ranks, one GPU each. Default: 1.",
            type=Whole(),
        ),
        option(
            "Devices",
            "--device",
            field="device.name parallelism.world_size",
            about="Device of the catalogue, such as h100-80gb: its usable bytes and its rates. "
            "With a number in front, 8xh100-80gb, --gpus too. Default: none.",
            metavar="NAME",
        ),
        option(
            "Devices",
            "--gpu-memory",
            field="device.memory_bytes",
            about=f"Usable bytes of each GPU, such as 80GiB{memory}",
            metavar="BYTES",
        ),
    ]


DEVICES = devices(
    memory=". Without them no verdict is given.",
    prefetch="0, beyond what the schedule does by itself",
)
