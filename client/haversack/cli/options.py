"""The options of the commands: flags, units and defaults, once."""

from collections.abc import Callable
from typing import Any

from haversack.cli import measured, what_if
from haversack.cli.option_types import Address, Decorated, Seconds, UnitsFile, Whole
from haversack.cli.option_types import option as option
from haversack.cli.tuning_options import FINETUNING
from haversack.run import Attention, Loss, Optimizer, Precision, Recompute
from haversack.spelling import names_of


def all_of(*groups: list[Decorated]) -> Callable[[Decorated], Decorated]:
    """Put the options of some groups on a command, in their order."""

    def decorate(command: Decorated) -> Decorated:
        for each in reversed([each for group in groups for each in group]):
            command = each(command)
        return command

    return decorate


def _one_of(kind: Any) -> str:
    return ", ".join(names_of(kind))


_AXES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
_BESIDE: dict[str, str] = {
    "pp": "; plan is for 1",
    "ep": "; the activations of experts do not shrink with it",
}

MODEL = [
    option(
        "Model",
        "--model",
        field="documents",
        about="Hugging Face config.json of the model, or the folder that holds it; at most 1 MiB. "
        "Nothing is executed or downloaded.",
        metavar="CONFIG.json",
    ),
    option(
        "Model",
        "--config",
        "configs",
        field="documents",
        about="One of your own files: DeepSpeed, accelerate, torchtitan, Megatron arguments, "
        "TrainingArguments. The format is detected, or named in front: deepspeed:ds.json. Options "
        "given here override it; may be repeated.",
        metavar="[FORMAT:]FILE",
        multiple=True,
    ),
    option(
        "Model",
        "--launch",
        field="documents",
        about="The command line of the run in quotes, with Megatron-LM's options or "
        "TrainingArguments: 'torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 ...'.",
        metavar="'COMMAND'",
    ),
]

STATES = [
    option(
        "Model",
        "--units",
        field="units",
        about="Modules that are gathered at once, such as "
        '{"units": [{"name": "a", "parameter_count": 1000}]}.',
        type=UnitsFile(),
    ),
    option(
        "Model",
        "--parameter-count",
        field="parameter_count",
        about="Number of parameters, where nothing else is known: model states only.",
        type=Whole(),
    ),
    option(
        "Model",
        "--state-bytes",
        field="state_bytes",
        about="Bytes of parameters, gradients and optimizer state of the whole model, such as "
        "4GiB,4GiB,8GiB: model states only.",
        metavar="P,G,O",
    ),
]


def devices(*, memory: str, prefetch: str) -> list[Decorated]:
    """Make the options of devices; what two of them mean depends on the question."""
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
            field="device.name",
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
            about="FSDP2 (fully_shard): fp32 shards, units gathered in bf16. Not with --zero.",
            is_flag=True,
        ),
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
        option(
            "Devices",
            "--offload",
            field="parallelism.offload_optimizer",
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
        option(
            "Devices",
            "--prefetch-units",
            field="parallelism.prefetch_units",
            about=f"Units gathered ahead of the one that runs. Default: {prefetch}.",
            type=Whole(),
        ),
    ]


DEVICES = devices(
    memory=". Without them no verdict is given.",
    prefetch="0, beyond what the schedule does by itself",
)

TRAINING = [
    option(
        "Training",
        "--seq",
        field="training.seq",
        about="Tokens of a sequence. Needed for activations.",
        type=Whole(),
        metavar="TOKENS",
    ),
    option(
        "Training",
        "--target-seq",
        field="training.target_seq",
        about="Tokens of the decoder's sequences, for a model with an encoder. Default: --seq.",
        type=Whole(),
        metavar="TOKENS",
    ),
    option(
        "Training",
        "--microbatch",
        field="training.microbatch",
        about="Sequences that one forward takes on one rank. Needed for activations.",
        type=Whole(),
        metavar="SEQUENCES",
    ),
    option(
        "Training",
        "--accumulation",
        field="training.accumulation",
        about="Microbatches in one optimizer step. Default: 1.",
        type=Whole(),
    ),
    option(
        "Training",
        "--precision",
        field="training.precision",
        about=f"Recipe of numbers: {_one_of(Precision)}. Default: bf16-fp32-master; with --fsdp "
        "fp32-bf16-compute.",
        metavar="NAME",
    ),
    option(
        "Training",
        "--optimizer",
        field="training.optimizer",
        about=f"Optimizer, as far as its memory goes: {_one_of(Optimizer)}. Default: adamw.",
        metavar="NAME",
    ),
    option(
        "Training",
        "--optimizer-in-backward",
        field="training.optimizer_in_backward",
        about="Each parameter is updated as soon as its gradient is made, which is then freed.",
        is_flag=True,
        default=None,
    ),
    option(
        "Training",
        "--attention",
        field="training.attention",
        about=f"Attention kernel that the run really uses: {_one_of(Attention)}. Default: flash.",
        metavar="NAME",
    ),
    option(
        "Training",
        "--loss",
        field="training.loss",
        about=f"How the loss is made: {_one_of(Loss)}. Default: as the kernel profile's framework.",
        metavar="NAME",
    ),
    *FINETUNING,
]

RECOMPUTE = [
    option(
        "Training",
        "--recompute",
        field="training.recompute",
        about=f"What is recomputed in backward: {_one_of(Recompute)} (selective: the core "
        "of attention). Default: none.",
        metavar="NAME",
    ),
]

KERNELS = [
    option(
        "Training",
        "--kernel-profile",
        field="kernel_profile",
        about="Constants of a framework and its kernels. Default: hf-eager.",
        metavar="NAME",
        default="",
    ),
]

BUDGET = [
    option(
        "Budget",
        "--budget",
        field="budget",
        about="Bytes that may be used, such as 60GiB; a bare number is bytes. Default: what "
        "--gpu-memory leaves.",
        metavar="BYTES",
    ),
    option(
        "Budget",
        "--budget-kind",
        field="budget.kind",
        about="Which bytes the budget limits: allocated (of live tensors) or device (all that "
        "the GPU shows). Default: allocated.",
        metavar="NAME",
    ),
]

WHAT_IF = option(
    "Answer",
    "--what-if",
    "what_ifs",
    field="what_ifs",
    about="A variation to answer in the same call, such as 'zero=2 microbatch=4'; may be repeated.",
    metavar=what_if.METAVAR,
    callback=what_if.read_all,
    multiple=True,
)

MEASURED = option(
    "Answer",
    "--measured",
    "measurements",
    field="measurements",
    about="A figure read on a real run, to compare with and to go by: 'step 2 backward=71.2GiB', "
    "peak=71.2GiB, reserved=75GiB; peak@3=70GiB is of rank 3; may be repeated.",
    metavar=measured.METAVAR,
    callback=measured.read_all,
    multiple=True,
)

BRIEF = option(
    "Answer",
    "--brief",
    field="questions",
    about="Leave out the timeline, what would help, and the searches: the fastest answer.",
    is_flag=True,
)

TRACE = option(
    "Answer",
    "--trace",
    field="questions",
    about="Also run two steps under FSDP on the CPU, in a worker (small models, some ten seconds; "
    "needs torch and transformers).",
    is_flag=True,
)

# What a described model is asked about.
RUN = [*MODEL, *DEVICES, *TRAINING, *RECOMPUTE, *KERNELS, *BUDGET]

SERVER = [
    option(
        "Answer",
        "--server",
        field="server",
        about="Server to ask. Default: one inside this process.",
        type=Address(),
    ),
    option(
        "Answer",
        "--timeout",
        field="timeout",
        about="Seconds to wait for the answer. Default: the client's own.",
        type=Seconds(),
    ),
    option(
        "Answer",
        "--json",
        "as_json",
        about="Print the answer as one JSON object on standard output.",
        is_flag=True,
    ),
]

VERBOSE = [
    option(
        "Answer",
        "--verbose",
        "-v",
        about="Show all that the answer has: timelines, formulas, sources, conditions.",
        is_flag=True,
    ),
]
