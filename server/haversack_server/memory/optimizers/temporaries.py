"""What an optimizer step takes beside its state: temporaries, by the kernel that updates.

Measured on ``torch.optim`` (torch 2.13.0) by storages. A ``foreach`` kernel makes the roots of all
second moments at once (``adamw._multi_tensor_adamw``); Adagrad's makes a numerator beside them. A
for-loop (``_single_tensor_adamw``) makes a root and its quotient for one tensor while the quotient
of the tensor before is still named; most others make one tensor there. transformers' Adafactor
widens gradient and parameter first. Muon's Newton-Schulz iteration holds the update, two matrices
in bf16 and two square ones. Fused kernels and those of bitsandbytes make nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

from haversack.run import Optimizer, OptimizerKernel
from haversack_server.memory.optimizers.tensors import Matrix, Updated
from haversack_server.memory.recipe import Recipe

FP32, BF16 = 4, 2
# Tensors of the updated sizes that a foreach kernel makes of all at once.
_AT_ONCE = {
    Optimizer.ADAMW: 1,
    Optimizer.ADAMW_FOREACH: 1,
    Optimizer.ADAFACTOR: 1,
    Optimizer.RMSPROP: 1,
    Optimizer.ADAGRAD: 2,
}
# In a for-loop: tensors as large as the current one, beside one of the tensor before.
_IN_LOOP = {
    Optimizer.ADAMW: 2,
    Optimizer.ADAFACTOR: 1,
    Optimizer.RMSPROP: 1,
    Optimizer.ADAGRAD: 1,
}


def temporary_bytes(recipe: Recipe, units: Sequence[Updated]) -> int:
    """Give the most that lives within the step."""
    each = recipe.master or recipe.parameter
    if recipe.optimizer is Optimizer.MUON:
        return max(_newton_schulz(each, units), _of_adamw_beside(recipe, each, units))
    if recipe.optimizer is Optimizer.ADAFACTOR_FP32:
        copies = 2 if each == FP32 else 4
        return FP32 * _one_by_one([unit.elements for unit in units], copies)
    if recipe.optimizer_kernel is OptimizerKernel.FOREACH:
        return each * _AT_ONCE.get(recipe.optimizer, 0) * sum(unit.total for unit in units)
    if recipe.optimizer_kernel is OptimizerKernel.FOR_LOOP and recipe.optimizer in _IN_LOOP:
        sizes = [unit.elements for unit in units]
        return each * _one_by_one(sizes, _IN_LOOP[recipe.optimizer])
    return 0


def largest_temporary_bytes(recipe: Recipe, units: Sequence[Updated]) -> int:
    """Give the most that updating a single tensor takes, whichever it is."""
    largest = max((max(unit.elements, default=0) for unit in units), default=0)
    return temporary_bytes(recipe, [Updated(elements=(largest,))])


def _one_by_one(units: Sequence[tuple[int, ...]], copies: int) -> int:
    """Elements of what is made for a tensor, beside what is left of the tensor before."""

    def pair(before: int, current: int) -> int:
        return before + copies * current

    units = [unit for unit in units if unit]
    inside = {unit: max(pair(*each) for each in pairwise((0, *unit))) for unit in units}
    between = {(before[-1], after[0]) for before, after in pairwise(units)}
    return max([*inside.values(), *(pair(*each) for each in between)], default=0)


def _newton_schulz(each: int, units: Sequence[Updated]) -> int:
    """Bytes of the iteration on the largest matrix; it needs the matrix whole."""
    matrices = {matrix for shape in {unit.matrices for unit in units} for matrix in shape}
    return max((_iteration(each, matrix) for matrix in matrices), default=0)


def _iteration(each: int, matrix: Matrix) -> int:
    rows, columns = matrix
    return rows * columns * (each + 2 * BF16) + 2 * BF16 * min(matrix) ** 2


def _of_adamw_beside(recipe: Recipe, each: int, units: Sequence[Updated]) -> int:
    """Bytes that AdamW takes for what Muon leaves to it."""
    if recipe.optimizer_kernel is not OptimizerKernel.FOREACH:
        return 0
    return each * sum(unit.outside_matrices for unit in units)
