"""Parameter names, shapes and counts against the real modules, built on the meta device."""

import json
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real modules need torch")
transformers = pytest.importorskip(
    "transformers", "5", reason="the real modules are those of transformers 5"
)

from tests.integration import tiny_models  # noqa: E402

from haversack_server.memory.architecture import Architecture, UnitKind  # noqa: E402
from haversack_server.memory.hf_config import read_hf_config  # noqa: E402

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "mixtral", "gpt2"]


def random_config(family: str, seed: int) -> dict[str, Any]:
    """Draw a configuration; some keys are left out, so that defaults are compared too."""
    draw = random.Random(f"{family} {seed}")
    heads, kv_heads = draw.choice([32, 64]), draw.choice([2, 8, 32])
    hidden = heads * draw.choice([2, 8])
    layers, vocab = draw.randint(1, 4), draw.randint(10, 99)
    if family == "gpt2":
        config: dict[str, Any] = {"n_embd": hidden, "n_layer": layers, "n_head": heads}
        optional: dict[str, Any] = {"n_inner": draw.randint(1, 99), "n_positions": 77}
    else:
        config = {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": draw.randint(1, 99),
        }
        optional = {
            "num_key_value_heads": kv_heads,
            "head_dim": draw.choice([4, 6]),
            "attention_bias": draw.choice([True, False]),
            "mlp_bias": draw.choice([True, False]),
            "num_local_experts": draw.randint(2, 5),
        }
        if family in {"qwen2", "mistral", "mixtral", "gemma2"}:
            del optional["mlp_bias"]
        if family in {"qwen2", "mistral", "mixtral"}:
            del optional["attention_bias"]
        if family == "qwen2":
            del optional["head_dim"]
        if family != "mixtral":
            del optional["num_local_experts"]
    optional["tie_word_embeddings"] = draw.choice([True, False])
    kept = {key: value for key, value in optional.items() if draw.random() < 0.7}
    return {"model_type": family, "vocab_size": vocab, **config, **kept}


def ours(model: Architecture) -> dict[str, tuple[int, ...]]:
    """Return all parameters by full name."""
    result = {}
    for unit in model.units:
        prefix = f"{unit.name}." if unit.kind is UnitKind.LAYER else ""
        result.update({f"{prefix}{row.name}": row.shape for row in unit.parameters})
    return result


def theirs(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        settings = transformers.AutoConfig.for_model(**config)
        module = transformers.AutoModelForCausalLM.from_config(settings)
    # named_parameters gives a tied weight once, under its first name.
    return {name: tuple(row.shape) for name, row in module.named_parameters()}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_random_configurations_have_the_parameters_of_the_real_module(
    family: str, seed: int
) -> None:
    config = random_config(family, seed)
    model = read_hf_config(json.dumps(config)).architecture
    assert ours(model) == theirs(config)


@pytest.mark.parametrize("name", tiny_models.CONFIGS)
def test_the_tiny_models_have_the_parameters_of_the_real_module(name: str) -> None:
    assert ours(tiny_models.architecture(name)) == theirs(tiny_models.CONFIGS[name])
