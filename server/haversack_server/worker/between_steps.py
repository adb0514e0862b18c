"""What an optimizer's step between two steps takes away, or makes look like a side effect.

The gradients that it stepped by are gone when the second step ends, and a parameter that the second
step does not use would show nothing of them: a copy of each is kept, on the CPU, outside of what a
step's memory is measured by. And a weight that it moved says nothing of what the model itself made
of that weight: so weights are looked at before it, after it, and at the end.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes

from haversack.torch.sharding import own_part
from haversack_server.verify.comparison import FIRST_STEP
from haversack_server.worker.reach import tensor_digest
from haversack_server.worker.unrepeatable import unheard
from haversack_server.worker.values import Values


class BetweenSteps:
    """Looks at trained parameters and inputs where an optimizer steps between two steps.

    ``gradients`` and ``gradients_of_inputs`` are those of the first step, None for one that has
    none.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        inputs: Mapping[str, torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        groups = getattr(optimizer, "param_groups", ())
        moved = {id(each) for group in groups for each in group["params"]}
        self._parameters = parameters
        self._inputs = inputs
        trained = (*parameters.values(), *inputs.values())
        self._moved = [each for each in trained if id(each) in moved]
        self._before: list[str] = []
        self._after: list[str] = []
        self.gradients: Values = {}
        self.gradients_of_inputs: Values = {}

    @contextmanager
    def around(self) -> Iterator[None]:
        """Look before and after the optimizer's step."""
        with _aside():
            self.gradients = _copies(self._parameters)
            self.gradients_of_inputs = _copies(self._inputs)
            self._before = self._digests()
        yield
        with _aside():
            self._after = self._digests()

    def own_changes(self) -> dict[int, str]:
        """Spell what the steps themselves left in each parameter that was moved, by its id.

        Empty where no optimizer stepped.
        """
        if not self._after:
            return {}
        looks = zip(self._moved, self._before, self._after, self._digests(), strict=True)
        return {
            id(moved): before if after == now else f"{before}, then {now}"
            for moved, before, after, now in looks
        }

    def _digests(self) -> list[str]:
        return [" ".join(tensor_digest(each)) for each in self._moved]


@contextmanager
def _aside() -> Iterator[None]:
    with torch.no_grad(), _disable_current_modes(), unheard():
        yield


def _copies(trained: Mapping[str, torch.Tensor]) -> Values:
    return {f"{FIRST_STEP}{name}": _copy(each.grad) for name, each in trained.items()}


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else own_part(gradient.detach()).to("cpu", copy=True)
