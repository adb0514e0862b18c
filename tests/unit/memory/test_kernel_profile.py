"""The profiles that ship: every constant has a unit, a source and a word on how sure it is."""

from dataclasses import fields

import pytest

from haversack.errors import InvalidRequestError
from haversack_server.memory import kernel_profile
from haversack_server.memory.kernel_profile import KernelProfile, RmsNormKernel

SURE = {"measured", "read", "derived", "fitted", "assumed"}


def test_the_profiles_are_these() -> None:
    assert kernel_profile.names() == (
        "compile",
        "cpu",
        "deepspeed",
        "hf-cpu",
        "hf-eager",
        "litgpt",
        "megatron-local",
        "megatron-te",
        "paper-2205.05198",
        "torchtitan-eager",
        "torchtune-compile",
        "torchtune-eager",
    )


@pytest.mark.parametrize("name", kernel_profile.names())
def test_every_constant_states_its_unit_and_its_source(name: str) -> None:
    profile = kernel_profile.load(name)
    constants = {row.name for row in fields(KernelProfile)} - {"name", "title", "constants"}
    assert profile.constants.keys() == constants
    for row in profile.constants.values():
        assert row.unit
        assert len(row.source) > 20
        assert row.how_sure in SURE


@pytest.mark.parametrize("name", kernel_profile.names())
def test_a_constant_is_the_field_of_its_name(name: str) -> None:
    profile = kernel_profile.load(name)
    for key, row in profile.constants.items():
        assert getattr(profile, key) == row.value


def test_a_profile_states_only_what_differs_from_the_one_it_is_based_on() -> None:
    cpu, eager = kernel_profile.load("cpu"), kernel_profile.load("hf-eager")
    assert cpu.rms_norm is RmsNormKernel.COMPOSITE
    assert eager.rms_norm is RmsNormKernel.PYTHON
    assert cpu.constant("logit_saved_bytes") is not None
    assert cpu.constant("logit_saved_bytes") == eager.constant("logit_saved_bytes")


@pytest.mark.parametrize("name", ["margin_low_permille", "margin_high_permille"])
def test_what_no_measurement_stands_behind_is_called_not_calibrated(name: str) -> None:
    assert "not calibrated" in kernel_profile.load("hf-eager").constant(name).source


@pytest.mark.parametrize("name", kernel_profile.names())
def test_a_fitted_constant_names_the_rows_it_was_fitted_to(name: str) -> None:
    for row in kernel_profile.load(name).constants.values():
        if row.how_sure == "fitted":
            assert any(word in row.source for word in ("case", "row", "table")), row.source


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        kernel_profile.load("../hf-eager")
    assert caught.value.field == "kernel_profile"
    assert "use one of compile, cpu, deepspeed" in str(caught.value)


def test_a_profile_is_loaded_once() -> None:
    assert kernel_profile.load("cpu") is kernel_profile.load("cpu")
