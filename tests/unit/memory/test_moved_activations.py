"""Activations on the host: what leaves a layer, what is on its way, and what waits there."""

import json
from typing import Any

import pytest

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism
from haversack.run import Document, DocumentFormat
from haversack_server.estimate.answer import estimate

MIB = 2**20
SEQ, HIDDEN, HEADS, LAYERS = 2048, 1024, 16, 8
GPT = {
    "num-layers": LAYERS,
    "hidden-size": HIDDEN,
    "num-attention-heads": HEADS,
    "seq-length": SEQ,
    "max-position-embeddings": SEQ,
    "micro-batch-size": 1,
    "global-batch-size": 8,
    "vocab-size": 1024,
    "attention-backend": "unfused",
    "attention-dropout": 0.0,
    "hidden-dropout": 0.0,
    "bf16": True,
}
SOFTMAX = HEADS * SEQ * SEQ * 2
STREAM = SEQ * HIDDEN * 2


def asked(modules: str = "", ranks: int = 1, **changes: Any) -> Estimate:
    values: dict[str, Any] = GPT | {key.replace("_", "-"): each for key, each in changes.items()}
    if modules:
        values |= {"fine-grained-activation-offloading": True, "offload-modules": f"[{modules}]"}
    document = Document(format=DocumentFormat.MEGATRON_ARGUMENTS, text=json.dumps(values))
    return estimate(
        EstimateRequest(documents=(document,), parallelism=Parallelism(world_size=ranks))
    )


def terms(answer: Estimate) -> dict[str, int]:
    return {term.name: term.largest_bytes for term in answer.terms}


def test_what_leaves_waits_on_the_host_and_one_layer_is_on_its_way() -> None:
    whole, moved = asked(), asked("core_attn")
    # Queries, keys and values are views of one product, which the core keeps beside its softmax.
    layer = SOFTMAX + 3 * STREAM
    assert terms(moved)["activations on their way"] == layer
    assert moved.ranks[0].host_bytes == LAYERS * layer
    assert moved.host is not None
    assert moved.host.pinned_bytes == LAYERS * layer
    (term,) = moved.host.terms
    assert "tokens per rank" in term.scales_with
    assert terms(whole)["saved activations"] - terms(moved)["saved activations"] >= 6 * layer
    assert whole.host is None


def test_norms_send_the_stream_that_they_take() -> None:
    streams = {
        name: asked(name).ranks[0].host_bytes // LAYERS for name in ("attn_norm", "mlp_norm")
    }
    assert streams == {"attn_norm": STREAM, "mlp_norm": STREAM}
    assert asked("attn_norm mlp_norm").ranks[0].host_bytes == LAYERS * 2 * STREAM


def test_small_tensors_stay() -> None:
    assert asked("attn_norm", hidden_size=256).ranks[0].host_bytes == 0


def test_microbatches_in_flight_wait_there_too() -> None:
    found = asked("core_attn", 4, pipeline_model_parallel_size=4)
    first, last = (found.ranks[place].host_bytes for place in (0, -1))
    layer = SOFTMAX + 3 * STREAM
    assert (first, last) == (4 * 2 * layer, 2 * layer)


@pytest.mark.parametrize(
    ("modules", "changes", "named"),
    [
        ("core_attn fc9", {}, "activations of 'fc9' on the host"),
        ("core_attn", {"recompute_granularity": "full"}, "offload_modules with full"),
        (
            "core_attn",
            {"data_parallel_sharding_strategy": "optim_grads_params", "use_megatron_fsdp": True},
            "offload_modules with sharded parameters",
        ),
    ],
)
def test_what_is_not_known_is_named(modules: str, changes: dict[str, Any], named: str) -> None:
    found = asked(modules, **changes)
    assert found.peak is None
    assert named in "; ".join(found.not_modelled)


def test_the_setting_alone_says_too_little() -> None:
    found = asked(fine_grained_activation_offloading=True)
    assert "activations on the host" in "; ".join(found.not_modelled)


def test_parts_without_the_setting_move_nothing_and_are_listed() -> None:
    found = asked(offload_modules="[core_attn]")
    assert found.host is None
    assert any("offload-modules" in each for each in found.ignored_inputs)
