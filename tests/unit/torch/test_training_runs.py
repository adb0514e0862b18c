"""Training as factories return it: what will not do is refused in words, with its field."""

import random
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="training is of a module")

from torch import nn  # noqa: E402

from haversack.errors import InvalidRequestError  # noqa: E402
from haversack.torch import TrainingRun, TrainingWorkload  # noqa: E402
from haversack.torch.training_run import random_state, set_random_state_of  # noqa: E402


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


def drawn(rank: int, kept: dict[str, Any]) -> tuple[float, float, float]:
    set_random_state_of(rank, kept)
    return float(torch.rand(())), random.random(), float(numpy.random.rand())


def test_a_rank_goes_on_with_its_own_numbers_and_one_that_did_not_save_with_others() -> None:
    own = drawn(0, {"rank 0": random_state()})
    before = random_state()
    kept = {"rank 0": before}
    first = drawn(0, kept)
    assert first == drawn(0, kept) != own
    others = [drawn(rank, kept) for rank in (1, 2)]
    assert others == [drawn(rank, kept) for rank in (1, 2)]
    # Each of the three generators of each of the three ranks draws what no other does.
    assert all(len(set(each)) == 3 for each in zip(first, *others, strict=True))
    set_random_state_of(0, {})  # nothing was kept, and nothing is changed
