"""Plans applied to real models: of transformers, under DDP and under FSDP2, equal to the bit."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="plans are applied to models of PyTorch")
pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import torch.distributed as dist
import transformers
from tests.integration.gloo_ranks import run_ranks
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from haversack.errors import InvalidRequestError
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply
from haversack.torch.blocks import detected_blocks, fingerprint

SEQ, VOCABULARY = 12, 40
MODELS: dict[str, Mapping[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 3, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0},
    "llama": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    "t5": {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    },
}
OPTIONS = ("recompute", "selective aten.mm.default:1 aten.addmm.default:1,2", "save")


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, **MODELS[kind])
    name = "AutoModelForSeq2SeqLM" if kind == "t5" else "AutoModelForCausalLM"
    auto = getattr(transformers, name)
    return auto.from_config(config).train()


def plan_of(model: nn.Module) -> Plan:
    return Plan(
        actions=tuple(
            BlockAction(block=name, option=option, fingerprint=fingerprint(block))
            for (name, block), option in zip(
                detected_blocks(model).items(), itertools.cycle(OPTIONS), strict=False
            )
        )
    )


def step(model: Any, **kwargs: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    tokens = torch.arange(2 * SEQ).reshape(2, SEQ) % VOCABULARY
    loss = model(input_ids=tokens, labels=tokens, **kwargs).loss
    loss.backward()
    found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    found = {name: getattr(each, "full_tensor", lambda e=each: e)() for name, each in found.items()}
    model.zero_grad()
    return {**found, "loss": loss.detach()}


def assert_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert set(one) == set(other)
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_transformers_computes_the_same(kind: str) -> None:
    model = model_of(kind)
    # A cache moves keys and values to other memory, which CPU kernels add up in another order.
    plain = step(model, use_cache=False)
    caches: list[bool] = [model.config.use_cache]
    with apply(model, plan_of(model)) as applied:
        assert applied.options
        assert_equal(step(model), plain)
        assert_equal(step(model, use_cache=False), plain)
        caches.append(model.config.use_cache)
    assert [*caches, model.config.use_cache] == [True, False, True]
    assert_equal(step(model, use_cache=False), plain)


def test_a_cache_that_is_asked_for_is_refused() -> None:
    model = model_of("llama")
    tokens = torch.zeros(1, SEQ, dtype=torch.long)
    with apply(model, plan_of(model)):
        with pytest.raises(InvalidRequestError, match="use_cache=False"):
            model(input_ids=tokens, use_cache=True)
        with torch.no_grad():
            assert model(input_ids=tokens, use_cache=True).past_key_values is not None


def test_a_model_that_checkpoints_by_itself_is_refused() -> None:
    model = model_of("llama")
    model.model.layers[2].gradient_checkpointing = True
    apply(model, Plan(actions=plan_of(model).actions[:2])).remove()
    model.model.gradient_checkpointing = True
    with pytest.raises(InvalidRequestError, match=r"model checkpoints by itself; switch that off"):
        apply(model, plan_of(model))
    model.model.gradient_checkpointing = False
    apply(model, plan_of(model)).remove()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/gloo", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model: Any) -> Any:
    for block in detected_blocks(model).values():
        fully_shard(block)
    return fully_shard(model)


def replicated(model: Any) -> Any:
    return DistributedDataParallel(model)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("wrapped", [sharded, replicated])
@pytest.mark.parametrize("before", [True, False])
def test_wrappers_of_pytorch_compute_the_same_before_and_after(wrapped: Any, before: bool) -> None:
    plain = step(wrapped(model_of("llama")))
    model = model_of("llama")
    plan = plan_of(model)
    if before:
        applied = apply(model, plan)
        model = wrapped(model)
    else:
        model = wrapped(model)
        applied = apply(model, plan)
    with applied:
        assert_equal(step(model), plain)
    assert_equal(step(model), plain)


@pytest.mark.slow
def test_two_ranks_compute_the_same(tmp_path: Path) -> None:
    for said, failed in run_ranks("apply_two_ranks.py", 2, tmp_path):
        assert said == "DDP True, FSDP2 True\n", failed
