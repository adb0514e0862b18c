"""What an optimizer step takes beside its state: temporaries, by the kernel that updates.

Measured on ``torch.optim`` (torch 2.13.0) by storages: ``adamw._multi_tensor_adamw`` makes the
square roots of all second moments at once; ``_single_tensor_adamw`` makes a root and its quotient
for one tensor while the quotient of the tensor before is still named. Fused kernels make nothing.
Knows state only by the recipe's bytes per parameter.
"""

from collections.abc import Sequence
from itertools import pairwise

from haversack.run import Optimizer, OptimizerKernel
from haversack_server.memory.recipe import Recipe

_ADAM = (Optimizer.ADAMW, Optimizer.ADAMW_FOREACH)


def temporary_bytes(recipe: Recipe, units: Sequence[tuple[int, ...]]) -> int:
    """Give the most that lives within the step; ``units`` are elements of updated tensors."""
    each = recipe.master or recipe.parameter
    if recipe.optimizer_kernel is OptimizerKernel.FUSED or recipe.optimizer not in _ADAM:
        return 0
    if recipe.optimizer_kernel is OptimizerKernel.FOREACH:
        return each * sum(sum(unit) for unit in units)
    return each * _one_by_one(units)


def _one_by_one(units: Sequence[tuple[int, ...]]) -> int:
    """Elements of a root and its quotient, beside the quotient of the tensor before."""
    inside = {unit: max(_pair(*pair) for pair in pairwise((0, *unit))) for unit in units}
    between = {(before[-1], after[0]) for before, after in pairwise(units)}
    return max([*inside.values(), *(_pair(*pair) for pair in between)], default=0)


def _pair(before: int, current: int) -> int:
    return before + 2 * current
