"""Workloads whose model or configuration resists what is done to it before a run."""

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.run import WorkloadReference  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.verify import VerifyRequest  # noqa: E402
from haversack_server.worker.prepare import prepare  # noqa: E402

REQUEST = VerifyRequest(workload=WorkloadReference(name="mlp"))


class Writable:
    """Is as most configurations are."""

    use_cache = True


class Frozen(NamedTuple):
    """Takes no value."""

    use_cache: bool = True


class Resisting:
    """Answers nothing, not even whether it is another one."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError

    @property
    def use_cache(self) -> bool:
        raise RuntimeError


class OwnZeroGrad(nn.Linear):
    """Clears gradients as models of old do."""

    def zero_grad(self) -> None:  # type: ignore[override]
        raise AssertionError


def notes_of(config: Any) -> str:
    model = torch.nn.Linear(2, 2)
    model.config = config
    return " ".join(prepare(Workload(model), REQUEST)[1])


def test_a_cache_is_switched_off_where_it_can_be() -> None:
    assert "use_cache of the model's configuration is off in every run" in notes_of(Writable())
    assert "use_cache of the model's configuration could not be switched off" in notes_of(Frozen())
    assert "use_cache" not in notes_of(Resisting())


def test_gradients_are_forgotten_without_the_models_help() -> None:
    model = OwnZeroGrad(2, 2)
    model(torch.ones(2)).sum().backward()
    prepare(Workload(model), REQUEST)
    assert model.weight.grad is None
