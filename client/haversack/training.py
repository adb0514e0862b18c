"""Settings of the training step, and the words they are chosen from.

Nothing here has defaults with a meaning: what is not given stays None or UNSPECIFIED, and the
server says in its answer what it assumed. Knows no subject and no division over ranks.
"""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check
from haversack.finetuning import Finetuning


class Precision(enum.IntEnum):
    """The recipe of numbers: bytes per parameter, gradient and optimizer state."""

    UNSPECIFIED = 0
    BF16_FP32_MASTER = 1
    FP32_BF16_COMPUTE = 2
    FP32 = 3
    BF16 = 4
    BF16_FP32_GRADIENT = 5


class Optimizer(enum.IntEnum):
    """The optimizer, as far as its memory goes."""

    UNSPECIFIED = 0
    ADAMW = 1
    ADAMW_FOREACH = 2
    SGD = 3
    SGD_MOMENTUM = 4
    ADAFACTOR = 5
    ADAFACTOR_FP32 = 6
    ADAMW_8BIT = 7
    PAGED_ADAMW = 8
    PAGED_ADAMW_8BIT = 9
    LION = 10
    LION_8BIT = 11
    PAGED_LION = 12
    PAGED_LION_8BIT = 13
    MUON = 14
    RMSPROP = 15
    ADAGRAD = 16


class Attention(enum.IntEnum):
    """The attention kernel that the run really uses."""

    UNSPECIFIED = 0
    FLASH = 1
    EAGER = 2
    UNKNOWN = 3


class Recompute(enum.IntEnum):
    """What is recomputed in backward."""

    UNSPECIFIED = 0
    NONE = 1
    FULL = 2
    SELECTIVE = 3


class RecomputeModule(enum.IntEnum):
    """A part of a layer that selective recomputation runs again."""

    UNSPECIFIED = 0
    CORE_ATTENTION = 1
    MLP = 2
    LAYER_NORM = 3
    MOE_ACTIVATION = 4
    MOE = 5
    LATENT_EXPANSION = 6


class OffloadModule(enum.IntEnum):
    """A part of a layer whose kept inputs may go to the host."""

    UNSPECIFIED = 0
    ATTENTION_NORM = 1
    QUERY_KEY_VALUE = 2
    CORE_ATTENTION = 3
    ATTENTION_OUTPUT = 4
    FEED_FORWARD_NORM = 5
    EXPERT_INPUT = 6
    EXPERT_ACTIVATION = 7


class Fp8Recipe(enum.IntEnum):
    """How Transformer Engine scales the 8-bit numbers of matrix products."""

    UNSPECIFIED = 0
    DELAYED = 1
    TENSORWISE = 2
    BLOCKWISE = 3
    MXFP8 = 4


class RecomputeMethod(enum.IntEnum):
    """Which layers full recomputation runs again."""

    UNSPECIFIED = 0
    UNIFORM = 1
    BLOCK = 2


class Loss(enum.IntEnum):
    """How the loss is made of the last hidden states."""

    UNSPECIFIED = 0
    PLAIN = 1
    FP32 = 2
    FP32_IN_PLACE = 3
    IN_PLACE = 4
    CHUNKED = 5
    FUSED_LINEAR = 6


class NumberType(enum.IntEnum):
    """A type of floating-point numbers."""

    UNSPECIFIED = 0
    FP32 = 1
    BF16 = 2
    FP16 = 3


class OptimizerKernel(enum.IntEnum):
    """How an optimizer updates its tensors, as far as temporaries go."""

    UNSPECIFIED = 0
    FUSED = 1
    FOREACH = 2
    FOR_LOOP = 3


class StateDict(enum.IntEnum):
    """What a training checkpoint, a file, holds."""

    UNSPECIFIED = 0
    SHARDED = 1
    FULL = 2


class Occasion(enum.IntEnum):
    """Something a job does beside training steps; a saved checkpoint is a file here."""

    UNSPECIFIED = 0
    EVALUATION = 1
    SAVING = 2
    LOADING = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockAction:
    """The chosen way to run one block: the name of the block and of an option of its table.

    Blocks of one ``segment`` follow one another and run under one checkpoint; 0 is none.
    ``inner_segments`` number those within it that the block is in, the outermost first.
    """

    block: str
    option: str
    fingerprint: str = ""
    segment: int = 0
    inner_segments: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Settings of the training step."""

    microbatch: int | None = None
    seq: int | None = None
    accumulation: int | None = None
    precision: Precision = Precision.UNSPECIFIED
    optimizer: Optimizer = Optimizer.UNSPECIFIED
    attention: Attention = Attention.UNSPECIFIED
    recompute: Recompute = Recompute.UNSPECIFIED
    actions: tuple[BlockAction, ...] = ()
    no_sync: bool | None = None
    occasions: tuple[Occasion, ...] = ()
    recompute_modules: tuple[RecomputeModule, ...] = ()
    recompute_method: RecomputeMethod = RecomputeMethod.UNSPECIFIED
    recompute_layers: int | None = None
    loss: Loss = Loss.UNSPECIFIED
    loss_chunks: int | None = None
    loss_parallel: bool | None = None
    reduce_type: NumberType = NumberType.UNSPECIFIED
    optimizer_kernel: OptimizerKernel = OptimizerKernel.UNSPECIFIED
    state_dict: StateDict = StateDict.UNSPECIFIED
    target_seq: int | None = None
    finetuning: Finetuning | None = None
    optimizer_in_backward: bool | None = None
    fp8: Fp8Recipe = Fp8Recipe.UNSPECIFIED
    fp8_parameters: bool | None = None
    offload_modules: tuple[OffloadModule, ...] = ()

    def __post_init__(self) -> None:
        found: list[Violation] = []
        sizes = ("microbatch", "seq", "target_seq", "accumulation")
        for name in (*sizes, "recompute_layers", "loss_chunks"):
            path = f"training.{name}"
            found += checks.optional_integer(path, getattr(self, name), least=1, most=2**31)
        if RecomputeModule.UNSPECIFIED in self.recompute_modules:
            known = ", ".join(each.name for each in RecomputeModule if each)
            found.append(Violation("training.recompute_modules", f"say which: one of {known}"))
        if self.optimizer_in_backward and (self.accumulation or 1) > 1:
            sentence = (
                f"accumulation {self.accumulation} needs gradients that stay, and an optimizer in "
                "backward frees them; turn one off"
            )
            found.append(Violation("training.optimizer_in_backward", sentence))
        if OffloadModule.UNSPECIFIED in self.offload_modules:
            known = ", ".join(each.name for each in OffloadModule if each)
            found.append(Violation("training.offload_modules", f"say which: one of {known}"))
        if self.actions and self.recompute is not Recompute.UNSPECIFIED:
            sentence = "give recompute or actions, not both: actions name every block's option"
            found.append(Violation("training.actions", sentence))
        check(found)
