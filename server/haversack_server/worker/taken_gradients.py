"""Gradients that hooks take away while the backward runs.

An optimizer that steps inside the backward, a bucket, a main gradient in another type: their hooks
leave a parameter without a gradient, and what it was given is compared in its place. Keeps a copy
of each, on the CPU, outside of what a step's memory is measured by. Of a gradient that is left,
which can be compared itself, how often hooks ran is a side effect and no more.

What a hook made of it cannot be seen, only whether it had the same to do: a bucket that is written
twice, each time with a part, keeps the last one, however much the parts add up to.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

HOOKS = "hooks for its finished gradient"


class TakenGradients:
    """Adds up what each parameter is given that has a hook for its finished gradient."""

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._times: Counter[str] = Counter()
        for name, parameter in parameters.items():
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                self._times[name] = 0
                # The last hook before the gradient is stored: it sees what others have made of it.
                untyped: Any = parameter
                untyped.register_hook(self._noted_as(name))

    def of(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | str]:
        """Give what was taken from those without a gradient, and how often their hooks ran.

        Of those whose gradient was taken in one run and left in another, the sums may be equal.
        """
        sums = {name: g for name, g in self._sums.items() if parameters[name].grad is None}
        return {**sums, **self._calls(parameters, taken=True)}

    def calls_with_gradient(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Give how often the hooks ran of those whose gradient is where hooks found it."""
        return self._calls(parameters, taken=False)

    def _calls(self, parameters: Mapping[str, torch.Tensor], *, taken: bool) -> dict[str, str]:
        said = "gradient taken" if taken else "gradient left"
        return {
            f"{name} ({HOOKS})": f"called {times} times, {said}"
            for name, times in self._times.items()
            if (parameters[name].grad is None) is taken
        }

    def _noted_as(self, name: str) -> Callable[[torch.Tensor], None]:
        # A function of ours, through which no snapshot looks; it would through a partial.
        def note(gradient: torch.Tensor) -> None:
            self._note(name, gradient)

        return note

    def _note(self, name: str, gradient: torch.Tensor) -> None:
        self._times[name] += 1
        with torch.no_grad(), _disable_current_modes():
            own = gradient.detach().cpu()
            before = self._sums.get(name)
            self._sums[name] = own.clone() if before is None else before + own
