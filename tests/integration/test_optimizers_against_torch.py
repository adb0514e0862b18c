"""Optimizer state and temporaries of real optimizers on small real models, to the byte."""

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the real thing needs torch")
pytest.importorskip("transformers", "5", reason="the models are those of transformers 5")

from haversack.parallelism import Parallelism, Sharding
from haversack.run import Optimizer, OptimizerKernel, Precision, Training
from haversack_server.memory.degrees import resolve
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.recipe import recipe
from haversack_server.memory.states import RankStates, architecture_units, rank_states

from .optimizer_steps import state_bytes, temporary_bytes

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 101,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 16,
    },
}
Named = list[tuple[str, Any]]
Makes = Callable[[Named], list[Any]]


def alone(name: str, **kwargs: Any) -> Makes:
    """Make one optimizer of PyTorch for all weights."""
    return lambda named: [getattr(torch.optim, name)([w for _, w in named], lr=1e-3, **kwargs)]


def hf_adafactor(named: Named) -> list[Any]:
    kind = importlib.import_module("transformers.optimization").Adafactor
    weights = [weight for _, weight in named]
    return [kind(weights, scale_parameter=False, relative_step=False, lr=1e-3)]


def muon(named: Named) -> list[Any]:
    """Give matrices of layers to Muon, the rest to AdamW."""
    of_layers = [(".layers." in name or ".h." in name) and w.dim() == 2 for name, w in named]
    matrices = [w for (_, w), is_one in zip(named, of_layers, strict=True) if is_one]
    others = [w for (_, w), is_one in zip(named, of_layers, strict=True) if not is_one]
    return [torch.optim.Muon(matrices), torch.optim.AdamW(others, foreach=False)]


FUSED, FOREACH, LOOP = OptimizerKernel.FUSED, OptimizerKernel.FOREACH, OptimizerKernel.FOR_LOOP
KINDS: dict[str, tuple[Optimizer, OptimizerKernel, Makes]] = {
    "adamw fused": (Optimizer.ADAMW, FUSED, alone("AdamW", fused=True)),
    "adamw foreach": (Optimizer.ADAMW, FOREACH, alone("AdamW", foreach=True)),
    "adamw loop": (Optimizer.ADAMW, LOOP, alone("AdamW", foreach=False)),
    "adam": (Optimizer.ADAMW, FUSED, alone("Adam", fused=True)),
    "sgd": (Optimizer.SGD, FOREACH, alone("SGD", foreach=True)),
    "momentum": (Optimizer.SGD_MOMENTUM, FOREACH, alone("SGD", momentum=0.9, foreach=True)),
    "nesterov": (
        Optimizer.SGD_MOMENTUM,
        FOREACH,
        alone("SGD", momentum=0.9, nesterov=True, foreach=True),
    ),
    "adafactor": (Optimizer.ADAFACTOR, LOOP, alone("Adafactor")),
    "adafactor foreach": (Optimizer.ADAFACTOR, FOREACH, alone("Adafactor", foreach=True)),
    "adafactor of transformers": (Optimizer.ADAFACTOR_FP32, LOOP, hf_adafactor),
    "rmsprop": (Optimizer.RMSPROP, FOREACH, alone("RMSprop", foreach=True)),
    "rmsprop loop": (Optimizer.RMSPROP, LOOP, alone("RMSprop", foreach=False)),
    "adagrad": (Optimizer.ADAGRAD, FOREACH, alone("Adagrad", foreach=True)),
    "adagrad loop": (Optimizer.ADAGRAD, LOOP, alone("Adagrad", foreach=False)),
    "muon": (Optimizer.MUON, FUSED, muon),
}
TYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}


@pytest.fixture(params=sorted(CONFIGS))
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One small model."""
    return CONFIGS[request.param]


@pytest.fixture(params=list(TYPES), ids=lambda precision: precision.name)
def precision(request: pytest.FixtureRequest) -> Precision:
    """The type of everything."""
    return request.param  # type: ignore[no-any-return]


def ours(config: dict[str, Any], kind: str, precision: Precision) -> RankStates:
    """States of one rank that holds the model whole."""
    optimizer, kernel, _ = KINDS[kind]
    training = Training(optimizer=optimizer, optimizer_kernel=kernel, precision=precision)
    degrees = resolve(Parallelism())
    units = architecture_units(read_hf_config(json.dumps(config)).architecture.units, degrees)
    return rank_states(units, recipe(training, Sharding.REPLICATED)[0], degrees)


def named_weights(config: dict[str, Any], precision: Precision) -> Named:
    """Weights of the real model; tied ones stand once."""
    rest = {key: value for key, value in config.items() if key != "model_type"}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **rest)
    )
    return list(model.to(TYPES[precision]).named_parameters())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_state_of_a_real_optimizer_is_ours_to_the_byte(
    config: dict[str, Any], kind: str, precision: Precision
) -> None:
    optimizers = KINDS[kind][2](named_weights(config, precision))
    assert sum(state_bytes(each) for each in optimizers) == (
        ours(config, kind, precision).moment_bytes
    )


# Adafactor makes rows and columns of its tensors anew: vectors, which matter in small models only.
VECTORS_BYTES = 4 * 400


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"muon"}))
def test_a_real_step_takes_the_temporaries_that_we_say(
    config: dict[str, Any], kind: str, precision: Precision
) -> None:
    said = ours(config, kind, precision).temporary_bytes
    taken = sum(temporary_bytes(each) for each in KINDS[kind][2](named_weights(config, precision)))
    vectors = VECTORS_BYTES if "adafactor" in kind else 64
    assert abs(taken - said) <= vectors, kind


def test_muon_s_iteration_takes_what_we_say(config: dict[str, Any], precision: Precision) -> None:
    of_matrices = muon(named_weights(config, precision))[0]
    said = ours(config, "muon", precision).temporary_bytes
    assert abs(temporary_bytes(of_matrices) - said) <= 64
