"""Gradients that hooks take away while the backward runs.

An optimizer that steps inside the backward, a bucket, a main gradient in another type: their hooks
leave a parameter without a gradient, and what it was given is compared in its place. Keeps a copy
of each, on the CPU, outside of what a step's memory is measured by.
"""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


class TakenGradients:
    """Adds up what each parameter is given that has a hook for its finished gradient."""

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        for name, parameter in parameters.items():
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                # The last hook before the gradient is stored: it sees what others have made of it.
                untyped: Any = parameter
                untyped.register_hook(functools.partial(self._note, name))

    def of(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Give what was taken from those that are left without a gradient."""
        return {name: g for name, g in self._sums.items() if parameters[name].grad is None}

    def _note(self, name: str, gradient: torch.Tensor) -> None:
        with torch.no_grad(), _disable_current_modes():
            own = gradient.detach().cpu()
            before = self._sums.get(name)
            self._sums[name] = own.clone() if before is None else before + own
