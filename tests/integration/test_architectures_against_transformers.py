"""Parameter names, shapes and counts against the real modules, built on the meta device."""

import json

import pytest

torch = pytest.importorskip("torch", reason="the real modules need torch")
pytest.importorskip("transformers", "5", reason="the real modules are those of transformers 5")

from tests.integration import real_layers, tiny_models  # noqa: E402
from tests.integration.random_configs import ours, random_config, theirs  # noqa: E402

from haversack_server.memory.hf_config import read_hf_config  # noqa: E402
from haversack_server.memory.hf_families import FAMILIES  # noqa: E402

SEEDS = 7  # with every family, more than 200 configurations


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("family", FAMILIES)
def test_random_configurations_have_the_parameters_of_the_real_module(
    family: str, seed: int
) -> None:
    config = random_config(family, seed)
    model = read_hf_config(json.dumps(config)).architecture
    assert ours(model) == theirs(config)


def test_there_are_more_than_two_hundred_of_them() -> None:
    assert SEEDS * len(FAMILIES) > 200


@pytest.mark.parametrize("name", tiny_models.CONFIGS)
def test_the_tiny_models_have_the_parameters_of_the_real_module(name: str) -> None:
    assert ours(tiny_models.architecture(name)) == theirs(tiny_models.CONFIGS[name])


@pytest.mark.parametrize("name", real_layers.CONFIGS)
def test_the_models_with_real_layers_have_the_parameters_of_the_real_module(name: str) -> None:
    assert ours(real_layers.architecture(name)) == theirs(real_layers.CONFIGS[name])
