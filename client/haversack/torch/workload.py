"""A workload: the model, its arguments and its loss, as a factory returns them.

Knows nothing of how it is run. A factory is called once, and builds on the CPU; every run then
starts from a copy of what it returned, which a run on a GPU moves there. One that uses a GPU itself
is called for every run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haversack.errors import Violation, check

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Workload:
    """One training step to verify or to profile.

    ``model`` is called with ``args`` and ``kwargs``. ``loss`` turns what it returns into a scalar
    tensor; without it the ``.loss`` of the output is taken, else a scalar output itself, else the
    sum of all floating outputs, and the report says which. ``regions`` are names of modules to
    run under ``torch.utils.checkpoint``; None takes the calls that the model makes itself, and if
    it makes none the blocks in its ``ModuleList``s. ``between_forward_and_backward`` is called
    without arguments in every run, plain ones included.
    """

    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: "Callable[[Any], torch.Tensor] | None" = None
    regions: tuple[str, ...] | None = None
    optimizer: "torch.optim.Optimizer | None" = None
    between_forward_and_backward: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", _tuple_of(self.args))
        if self.regions is not None:
            object.__setattr__(self, "regions", _tuple_of(self.regions))
        found: list[Violation] = []
        for name in ("model", "loss", "between_forward_and_backward"):
            value = getattr(self, name)
            if not callable(value) and (name == "model" or value is not None):
                found.append(Violation(name, f"{type(value).__name__} cannot be called"))
        check(found + self._argument_violations())

    def _argument_violations(self) -> list[Violation]:
        found: list[Violation] = []
        given: dict[str, Any] = {"args": self.args, "kwargs": self.kwargs}
        if not isinstance(given["args"], tuple):
            found.append(Violation("args", f"{type(self.args).__name__} is not a tuple"))
        kwargs = given["kwargs"]
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            found.append(Violation("kwargs", "not a mapping from names to arguments"))
        regions: Any = self.regions
        if regions is not None and not (
            isinstance(regions, tuple) and all(isinstance(name, str) for name in regions)
        ):
            found.append(Violation("regions", f"{regions!r} is not a sequence of module names"))
        if self.optimizer is not None and not callable(getattr(self.optimizer, "step", None)):
            found.append(Violation("optimizer", "it has no step(); give a torch.optim.Optimizer"))
        return found


def _tuple_of(value: Any) -> Any:
    """Take a list for a tuple; what is neither is left for the check to name."""
    return tuple(value) if isinstance(value, list) else value
