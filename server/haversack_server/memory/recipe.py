"""Bytes per parameter: the recipe of numbers that a precision and an optimizer make together.

Knows nothing of sharding. Sources: ZeRO paper (SC20, section 3.1) for 2 + 2 + 12; PyTorch's
fully_shard with MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32) for 4 + 4 + 8.
"""

from dataclasses import dataclass, replace

from haversack.parallelism import Sharding
from haversack.run import NumberType, Optimizer, OptimizerKernel, Precision, Training
from haversack_server.memory.autocast import PRODUCT_BYTES
from haversack_server.memory.fp8 import copy_permille
from haversack_server.memory.optimizers.kinds import KINDS, Form, kernel_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes for each parameter, by what they are for.

    ``master`` is the fp32 copy that mixed precision keeps from the start; ``moments`` appear in the
    first optimizer step, each number of ``moment`` bytes; None where they depend on more than a
    number of parameters (``optimizers.state``). ``compute`` is a number's size in forward and
    backward, ``reduce`` its size in the reduction of gradients. ``main_gradients``: gradients have
    a buffer from the start, into which backward adds. ``product`` is a number's size in matrix
    products under autocast, 0 without it. ``weight_copies_permille`` are bytes for 1,000 weights of
    copies that matrix products in 8 bits take.
    """

    parameter: int
    gradient: int
    master: int
    moment: int
    moments: int | None
    compute: int
    reduce: int
    formula: str
    source: str
    main_gradients: bool = False
    optimizer: Optimizer = Optimizer.ADAMW
    optimizer_kernel: OptimizerKernel = OptimizerKernel.FUSED
    product: int = 0
    weight_copies_permille: int = 0


_ZERO = "ZeRO paper (SC20), section 3.1"
_FSDP2 = "PyTorch fully_shard with bf16 parameters and fp32 reduction"
_AUTOCAST = "PyTorch autocast over fp32 parameters: gradients and optimizer state in fp32"
_MEGATRON = "Megatron-LM with bf16: main gradients in fp32, added up and reduced as such"
# parameter, gradient, master, one moment, compute, reduce, source
_NUMBERS = {
    Precision.BF16_FP32_MASTER: (2, 2, 4, 4, 2, 2, _ZERO),
    Precision.FP32_BF16_COMPUTE: (4, 4, 0, 4, 2, 4, _FSDP2),
    Precision.FP32: (4, 4, 0, 4, 4, 4, "PyTorch defaults"),
    Precision.BF16_FP32_GRADIENT: (2, 4, 4, 4, 2, 4, _MEGATRON),
    Precision.BF16: (2, 2, 0, 2, 2, 2, "PyTorch optimizers keep state in the parameters' type"),
}
_CASTING = (Sharding.FSDP1, Sharding.FSDP2)
_DEFAULTS = dict.fromkeys(_CASTING, Precision.FP32_BF16_COMPUTE) | {
    Sharding.DISTRIBUTED_OPTIMIZER: Precision.BF16_FP32_GRADIENT
}
_WIDTHS = {NumberType.FP32: 4, NumberType.BF16: 2, NumberType.FP16: 2}


def recipe(training: Training, sharding: Sharding) -> tuple[Recipe, tuple[str, ...]]:
    """Choose the recipe of a run; gives the assumptions that were made beside it."""
    assumptions: list[str] = []
    precision = precision_of(training, sharding)
    optimizer = training.optimizer
    if optimizer is Optimizer.UNSPECIFIED:
        optimizer = Optimizer.ADAMW
        assumptions.append("optimizer: AdamW without temporaries of the parameters' size")
    made = _make(training, precision, optimizer)
    if precision is Precision.FP32_BF16_COMPUTE and sharding not in _CASTING:
        # Activations stay in fp32 but for matrix products, and so do the gradients of parameters.
        made = replace(made, compute=made.parameter, product=PRODUCT_BYTES, source=_AUTOCAST)
    asked = training.optimizer_kernel
    if asked and asked is not made.optimizer_kernel:
        taken = made.optimizer_kernel.name
        assumptions.append(f"kernel: {taken}, since {optimizer.name} has no {asked.name} one")
    if training.precision is Precision.UNSPECIFIED:
        assumptions.append(f"precision: {made.formula} bytes per parameter ({made.source})")
    return made, tuple(assumptions)


def precision_of(training: Training, sharding: Sharding) -> Precision:
    """Give the precision of a run: what it says, else what its sharding is usually run with."""
    return training.precision or _DEFAULTS.get(sharding, Precision.BF16_FP32_MASTER)


def _make(training: Training, precision: Precision, optimizer: Optimizer) -> Recipe:
    parameter, gradient, master, moment, compute, reduce, source = _NUMBERS[precision]
    kind = KINDS[optimizer]
    moment = kind.width or moment
    moments = moment * kind.moments if kind.form is Form.WHOLE else None
    return Recipe(
        parameter=parameter,
        gradient=gradient,
        master=master,
        moment=moment,
        moments=moments,
        compute=compute,
        reduce=_WIDTHS.get(training.reduce_type, reduce),
        main_gradients=precision is Precision.BF16_FP32_GRADIENT,
        optimizer=optimizer,
        optimizer_kernel=kernel_of(optimizer, training.optimizer_kernel),
        weight_copies_permille=copy_permille(training),
        formula=f"{parameter} + {gradient} + {_state_formula(master, moments, optimizer)}",
        source=source,
    )


def _state_formula(master: int, moments: int | None, optimizer: Optimizer) -> str:
    """Write the bytes of optimizer state for a parameter, as far as they are a number."""
    if moments is not None:
        return str(master + moments)
    words = f"state of {optimizer.name}"
    return f"{master} + {words}" if master else words
