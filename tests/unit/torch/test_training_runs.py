"""Training as factories return it: what will not do is refused in words, with its field."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training is of a module")

from torch import nn  # noqa: E402

from haversack.errors import InvalidRequestError  # noqa: E402
from haversack.torch import TrainingRun, TrainingWorkload  # noqa: E402


class Ones:
    """A stream without a place."""

    def __call__(self, rank: int, size: int) -> tuple[Any]:
        return (torch.ones(2, 3),)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


def training(**fields: Any) -> TrainingWorkload:
    return TrainingWorkload(
        nn.Linear(3, 2), Ones(), lambda model: torch.optim.SGD(model.parameters()), **fields
    )


@pytest.mark.parametrize("extras", [[Ones()], {1: Ones()}, None])
def test_extras_without_names_are_refused(extras: Any) -> None:
    with pytest.raises(InvalidRequestError, match="extras are by name") as refused:
        training(extras=extras)
    assert refused.value.field == "extras"


@pytest.mark.parametrize("loss", [None, torch.ones(2), 0.5])
def test_a_step_that_gives_no_loss_says_so(loss: Any) -> None:
    given = training(step=lambda run, batch: loss)
    optimizer = given.optimizer(given.model)
    run = TrainingRun(given, given.model, optimizer, None, 0, 1, False)
    with pytest.raises(InvalidRequestError, match="not a scalar tensor"):
        run.step()
