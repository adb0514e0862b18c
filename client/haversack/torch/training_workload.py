"""A training run that can be stopped and gone on with, as a factory returns it for resume jobs.

Says what the training consists of and what it keeps on disk. Knows nothing of ranks and files. What
is kept is a training checkpoint, and no activation checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haversack.errors import Violation, check

if TYPE_CHECKING:
    import torch
    from torch import nn

    from haversack.torch.training_run import TrainingRun

_STATEFUL = ("state_dict", "load_state_dict")
_MADE = ("optimizer", "scheduler", "loss", "step", "save", "restore")


@dataclass(frozen=True)
class TrainingWorkload:
    """Training of a model, from its first step.

    ``data(rank, size)`` gives the arguments of the model for one rank's part of the next global
    batch, as a tuple; the global batch is the same whatever the ``size``, and ``state_dict`` and
    ``load_state_dict`` of ``data`` are about the whole stream of samples, alike on every rank.
    ``optimizer`` is made from the model once it is spread over ranks, ``scheduler`` from the
    optimizer. ``loss`` turns what the model returns into a scalar, as that of ``Workload`` does.
    ``step(run, batch)`` takes one step and returns its loss; without it forward, backward,
    optimizer and scheduler follow each other. ``extras`` are other things with a state, by name: a
    gradient scaler, a moving average.

    ``save(run)`` gives what is kept, a nested mapping, and ``restore(run, state)`` puts it back;
    without them everything is kept, as ``TrainingRun.state_dict`` does.
    """

    model: "nn.Module"
    data: Any
    optimizer: "Callable[[nn.Module], torch.optim.Optimizer]"
    scheduler: "Callable[[torch.optim.Optimizer], Any] | None" = None
    loss: "Callable[[Any], torch.Tensor] | None" = None
    step: "Callable[[TrainingRun, tuple[Any, ...]], torch.Tensor] | None" = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    save: "Callable[[TrainingRun], dict[str, Any]] | None" = None
    restore: "Callable[[TrainingRun, dict[str, Any]], object] | None" = None

    def __post_init__(self) -> None:
        found: list[Violation] = []
        for name in _MADE:
            value = getattr(self, name)
            if not callable(value) and (name == "optimizer" or value is not None):
                found.append(Violation(name, f"{_kind(value)} cannot be called; give a function"))
        if not callable(self.data):
            found.append(Violation("data", f"{_kind(self.data)} cannot be called with rank, size"))
        found += _without_state("data", self.data)
        found += _of_extras(self.extras)
        if (self.save is None) is not (self.restore is None):
            found.append(Violation("restore", "give save and restore, or neither"))
        check(found)


def _without_state(field: str, value: object) -> list[Violation]:
    lacking = [name for name in _STATEFUL if not callable(getattr(value, name, None))]
    if not lacking:
        return []
    return [Violation(field, f"{_kind(value)} has no {' and no '.join(lacking)}")]


def _of_extras(extras: object) -> list[Violation]:
    if not isinstance(extras, Mapping) or not all(isinstance(name, str) for name in extras):
        sentence = "extras are by name; give a mapping of texts to what has a state"
        return [Violation("extras", sentence)]
    each = (_without_state(f"extras[{name}]", extra) for name, extra in extras.items())
    return [violation for found in each for violation in found]


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
