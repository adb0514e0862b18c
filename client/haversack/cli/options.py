"""The options of the commands: flags, units and defaults, once.

Those of devices and of adapters stand in files of their own.
"""

from collections.abc import Callable
from typing import Any

from haversack.cli import measured, what_if
from haversack.cli.device_options import DEVICES as DEVICES
from haversack.cli.option_types import Address, Decorated, Seconds, UnitsFile, Whole
from haversack.cli.option_types import option as option
from haversack.cli.tuning_options import FINETUNING
from haversack.run import Attention, Loss, NumberType, Optimizer, Precision, Recompute
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
        about="Sequences that one forward takes on one rank. Default: 1.",
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
        "--reduce-type",
        field="training.reduce_type",
        about=f"Type in which gradients are reduced: {_one_of(NumberType)}. Default: that of the "
        "recipe; fp32 with --fsdp.",
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

ALLOCATOR = option(
    "Answer",
    "--allocator",
    field="questions",
    about="Find reserved bytes by replaying the run's allocations, not by a factor (one GPU, eager "
    "Hugging Face models).",
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
