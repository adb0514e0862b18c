"""Matrix products in 8 bits, as Transformer Engine runs them: what is kept, and copies of weights.

A product keeps its input in 8 bits, laid out for the gradient of the weight, in place of 16; its
weight has two copies in 8 bits, one for each way, made in the first microbatch of a step and kept
(transformer_engine/pytorch/module/linear.py, base.py). Attention, norms, routers, embeddings and
logits stay as they are. Knows nothing of devices: from Blackwell on one copy is enough where a
tensor has one scale, so two are an upper bound there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haversack.run import TrainingRun
from haversack.training import Fp8Recipe, Recompute, RecomputeModule, Training
from haversack_server.memory.kernel_profile import DEFAULT

if TYPE_CHECKING:
    from haversack_server.memory.architecture import Parameter
    from haversack_server.memory.tape_builder import TapeBuilder

# Bytes for each 1,000 numbers in 8 bits with their scales, rounded up: one scale of 4 bytes for 128
# numbers of an input (16,384 of a weight) or of one byte for 32.
_PERMILLE = {
    Fp8Recipe.DELAYED: 1000,
    Fp8Recipe.TENSORWISE: 1000,
    Fp8Recipe.BLOCKWISE: 1032,
    Fp8Recipe.MXFP8: 1032,
}
PROFILE = "megatron-te"  # the one whose layers are Transformer Engine's
_LAYOUTS = 2  # of a weight: for the product, and for the gradient of its input
# Products of Megatron-LM that are not Transformer Engine's.
_PRECISE = ("router", "logits")
_OTHER_WEIGHTS = (
    *("router", "mlp.gate.", "expert_gate"),
    *("embed", "wte", "wpe", "output_layer", "lm_head", "pooler", "binary_head"),
)
# Products that keep what they take as it is: Megatron-LM says so where it is made again in backward
# (set_save_original_input of megatron/core/extensions/transformer_engine.py). Attention's result is
# kept by its kernel anyway.
_AFTER_NORMS = ("query, key, value", "query, compressed", "key and value, compressed", "query")
_FIRST_OF_FFN = ("feed-forward in", "gate and up", "gate", "up", "shared in")
_ORIGINALS = {
    RecomputeModule.LAYER_NORM: (*_AFTER_NORMS, *_FIRST_OF_FFN),
    RecomputeModule.MOE_ACTIVATION: ("expert down",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8:
    """How products run: the recipe of scales, and whose inputs are kept in 16 bits."""

    recipe: Fp8Recipe
    originals: frozenset[str] = frozenset()

    def runs(self, product: str) -> bool:
        """Whether the product of that name on a tape runs in 8 bits."""
        return product not in _PRECISE

    def size(self, size_bytes: int, itemsize: int) -> int:
        """Bytes in 8 bits, scales included, of what takes ``size_bytes`` otherwise."""
        return -(-size_bytes // itemsize * _PERMILLE[self.recipe] // 1000)


def fp8_of(training: Training) -> Fp8 | None:
    """Read the recipe of a run; None where there is none."""
    if not training.fp8:
        return None
    again = training.recompute_modules if training.recompute is Recompute.SELECTIVE else ()
    names = [name for module in again for name in _ORIGINALS.get(module, ())]
    if training.fp8 is not Fp8Recipe.DELAYED:
        names.append("attention output")
    return Fp8(recipe=training.fp8, originals=frozenset(names))


def copy_permille(training: Training) -> int:
    """Bytes of the copies of 1,000 weights; weights that are in 8 bits themselves have none."""
    if not training.fp8 or training.fp8_parameters:
        return 0
    return _LAYOUTS * _PERMILLE[training.fp8]


def unmodelled_fp8(run: TrainingRun) -> Mapping[str, bool]:
    """Name what is not known of products in 8 bits: other kernels than those that were read."""
    training = run.training
    if not training.fp8:
        return {}
    blocks = training.fp8 in (Fp8Recipe.BLOCKWISE, Fp8Recipe.MXFP8)
    return {
        f"fp8 under the kernel profile {run.kernel_profile or DEFAULT}": run.kernel_profile
        != PROFILE,
        "fp8 of a subject without layers": not run.subjects()["documents"],
        "fp8 of frozen weights": training.finetuning is not None,
        f"fp8_parameters with {training.fp8.name.lower()} scales": bool(training.fp8_parameters)
        and blocks,
    }


def is_multiplied(parameter: "Parameter") -> bool:
    """Tell whether a parameter is the matrix of a product in 8 bits."""
    other = any(part in parameter.name for part in _OTHER_WEIGHTS)
    return len(parameter.shape) > 1 and not other and not parameter.name.endswith(".bias")


def fp8_product(
    tape: "TapeBuilder", name: str, source: str, rows: int, sizes: tuple[int, int], saved: str
) -> str:
    """Append ``rows x inputs`` times ``inputs x outputs``; ``saved`` stands in for the input."""
    fp8 = tape.fp8
    if fp8 is None:
        raise ValueError(f"{name} does not run in 8 bits")
    kept, whole = saved or source, fp8.size(tape.size(source), tape.itemsize)
    result = tape.storage(name, rows * sizes[1] * tape.itemsize)
    if name not in fp8.originals:
        size = fp8.size(tape.size(kept), tape.itemsize)
        narrow = tape.storage(f"{name} input in 8 bits", size, 0)
        tape.add(f"{name} input in 8 bits", [kept], [narrow])
        kept = narrow
    tape.add(
        name,
        [source],
        [result],
        [kept],
        # The gradient of the result in both layouts; what stands in for the input, gathered again.
        backward_scratch_bytes=2 * fp8.size(tape.size(result), tape.itemsize)
        + (whole if saved or kept == source else 0),
        # The input in the other layout.
        forward_scratch_bytes=whole,
        flops=2 * rows * sizes[0] * sizes[1],
        parameter_bytes=sizes[0] * sizes[1] * tape.itemsize,
    )
    return result
