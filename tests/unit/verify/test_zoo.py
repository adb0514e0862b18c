"""The built-in workloads beside what the catalog says of them."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="the built-in workloads need the extra torch")

from haversack_server.verify.catalog import ARGUMENTS, WORKLOADS  # noqa: E402
from haversack_server.worker.step import loss_of  # noqa: E402
from haversack_server.worker.zoo import FACTORIES  # noqa: E402


def test_the_catalog_names_what_the_zoo_builds() -> None:
    assert FACTORIES.keys() == WORKLOADS.keys()
    assert list(WORKLOADS) == sorted(WORKLOADS)


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_the_catalog_knows_the_arguments_that_the_zoo_takes(name: str) -> None:
    taken = inspect.signature(FACTORIES[name]).parameters.values()
    declared = ARGUMENTS.get(name, ())
    assert [(each.name, each.default) for each in declared] == [(p.name, p.default) for p in taken]
    assert all(each.least <= each.default <= each.most for each in declared)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_built_in_workload_runs_with_its_least_arguments(name: str) -> None:
    workload = FACTORIES[name](**{each.name: each.least for each in ARGUMENTS[name]})
    loss, _ = loss_of(workload, workload.model(*workload.args))
    torch.autograd.backward(loss)
    assert loss.isfinite()
