"""Which adapter reads which format; each is one file, with a version of its own."""

from collections.abc import Callable

from haversack.run import DocumentFormat
from haversack_server.memory.inputs import (
    accelerate,
    deepspeed,
    megatron,
    torchtitan,
    training_arguments,
)
from haversack_server.memory.inputs.reading import Reading, Source

Adapter = Callable[[str, Source], Reading]

ADAPTERS: dict[DocumentFormat, Adapter] = {
    DocumentFormat.DEEPSPEED: deepspeed.read_deepspeed,
    DocumentFormat.ACCELERATE: accelerate.read_accelerate,
    DocumentFormat.TORCHTITAN_TOML: torchtitan.read_toml,
    DocumentFormat.TORCHTITAN_JSON: torchtitan.read_json,
    DocumentFormat.HF_TRAINING_ARGUMENTS: training_arguments.read_training_arguments,
    DocumentFormat.MEGATRON_ARGUMENTS: megatron.read_megatron,
}
