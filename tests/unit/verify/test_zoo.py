"""The built-in workloads beside what the catalog says of them."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from haversack.run import WorkloadReference
from haversack.verify import Facet, VerifyRequest, VerifySchedule, VerifyVerdict
from haversack_server.verify.cases import cases
from haversack_server.verify.library import models
from haversack_server.verify.verdict import STRONG_FACETS

torch = pytest.importorskip("torch", reason="the built-in workloads need the extra torch")

from haversack_server.verify.catalog import (  # noqa: E402
    ARGUMENTS,
    WORKLOADS,
    with_own_settings,
)
from haversack_server.worker.step import loss_of  # noqa: E402
from haversack_server.worker.zoo import FACTORIES, TRAININGS  # noqa: E402
from haversack_server.worker.zoo.case import CASES  # noqa: E402


def test_the_catalog_names_what_the_zoo_builds() -> None:
    assert FACTORIES.keys() | TRAININGS.keys() == WORKLOADS.keys()
    assert not FACTORIES.keys() & TRAININGS.keys()
    assert {each.name for each in WORKLOADS.values() if each.resume} == TRAININGS.keys()
    assert list(WORKLOADS) == sorted(WORKLOADS)


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_the_catalog_knows_the_arguments_that_the_zoo_takes(name: str) -> None:
    taken = inspect.signature(FACTORIES[name]).parameters.values()
    declared = ARGUMENTS.get(name, ())
    assert [(each.name, each.default) for each in declared] == [(p.name, p.default) for p in taken]
    assert all(each.least <= each.default <= each.most for each in declared)


def test_there_are_as_many_as_were_promised() -> None:
    assert len(cases()) >= 120
    assert len(models()) >= 60
    assert cases().keys() | models().keys() == WORKLOADS.keys()


@pytest.mark.parametrize("name", sorted(CASES | TRAININGS))
def test_a_case_is_described_by_its_own_words(name: str) -> None:
    assert (CASES | TRAININGS)[name].__doc__ == f"{cases()[name].description}."


def test_what_is_expected_fits_together() -> None:
    for case in cases().values():
        strong = {facet for facet, value in case.facets.items() if facet in STRONG_FACETS}
        is_sound = case.verdict in (VerifyVerdict.EQUIVALENT, VerifyVerdict.FAILED)
        assert is_sound is not bool(strong), case.name
        assert bool(case.state) is (Facet.SIDE_EFFECTS in case.facets), case.name


def test_a_workload_has_its_own_schedule_unless_one_is_asked_for() -> None:
    named = WorkloadReference(name="state-thread-local")
    plain = VerifyRequest(workload=named)
    assert with_own_settings(plain).schedule is VerifySchedule.BACKWARD_IN_THREAD
    asked = replace(plain, schedule=VerifySchedule.TWO_STEPS)
    assert with_own_settings(asked) is asked
    of_user = VerifyRequest(workload=WorkloadReference(entry_point="mine.models:build"))
    assert with_own_settings(of_user) is of_user


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() & cases().keys()))
def test_a_built_in_workload_runs_with_its_least_arguments(name: str) -> None:
    workload = FACTORIES[name](**{each.name: each.least for each in ARGUMENTS[name]})
    loss, _ = loss_of(workload, workload.model(*workload.args))
    torch.autograd.backward(loss)
    assert loss.isfinite()


def test_a_case_takes_the_tensors_that_it_keeps_along_as_the_same_objects() -> None:
    model: Any = FACTORIES["inputs-attribute-changed"]().model
    scale = model.scale
    model.double()  # as a move to another device does it
    assert model.scale is scale
    assert scale.dtype == model.linear.weight.dtype
    assert str(scale.dtype) == "torch.float64"
