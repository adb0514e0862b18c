"""Offload, paging and an optimizer in backward: what leaves the device, and where it is then."""

import json
from dataclasses import replace
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateRequest, ReasonCode
from haversack.parallelism import Parallelism, Sharding
from haversack.requests import estimate_request
from haversack.run import Document, DocumentFormat, Optimizer, Precision, StateBytes, Training
from haversack_server.estimate.answer import estimate

BILLION = 10**9
MODEL = Document(
    format=DocumentFormat.HF_CONFIG,
    text=json.dumps(
        {
            "model_type": "llama",
            "vocab_size": 32_000,
            "hidden_size": 1024,
            "intermediate_size": 2816,
            "num_hidden_layers": 8,
            "num_attention_heads": 16,
            "tie_word_embeddings": False,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "max_position_embeddings": 2048,
        }
    ),
)
DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)
FSDP = (Sharding.FSDP1, Sharding.FSDP2)


def states(sharding: Sharding, ranks: int = 8, **given: Any) -> Estimate:
    """States of a billion parameters, of which nothing else is known."""
    parallelism = Parallelism(world_size=ranks, sharding=sharding, **given)
    return estimate(EstimateRequest(parameter_count=BILLION, parallelism=parallelism))


def answer(training: Training | None = None, **parallelism: Any) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(MODEL,),
            training=training or Training(microbatch=1, seq=512),
            parallelism=Parallelism(**parallelism),
        )
    )


def peak(found: Estimate) -> int:
    assert found.peak is not None, found.reason
    return found.peak.allocated.expected_bytes


@pytest.mark.parametrize(
    ("sharding", "given", "device", "host"),
    [
        # DeepSpeed's documented estimate of stage 2: 2 bytes a parameter on the device.
        (Sharding.ZERO_2, {"offload_optimizer": True}, 2, (4 + 8 + 4 + 2) / 8),
        (Sharding.ZERO_1, {"offload_optimizer": True}, 2 + 2, (4 + 8 + 4 + 2) / 8),
        # Its estimate of stage 3: 2 P / N beside the largest layer; 18 P / N on the host.
        (Sharding.ZERO_3, {"offload_optimizer": True}, 2 / 8, (4 + 8 + 4 + 2) / 8),
        (
            Sharding.ZERO_3,
            {"offload_optimizer": True, "offload_parameters": True},
            0,
            (4 + 8 + 4 + 2 + 2) / 8,
        ),
        (Sharding.ZERO_3, {"offload_parameters": True}, (2 + 12) / 8, 2 / 8),
        (Sharding.FSDP2, {"offload_parameters": True}, 0, (4 + 4 + 8) / 8),
        (Sharding.FSDP1, {"offload_parameters": True}, 0, (4 + 4 + 8) / 8),
        (Sharding.DISTRIBUTED_OPTIMIZER, {"offload_optimizer": True}, 2 + 4, (4 + 8 + 4) / 8),
    ],
)
def test_bytes_for_a_parameter_on_the_device_and_on_the_host(
    sharding: Sharding, given: dict[str, bool], device: float, host: float
) -> None:
    found = states(sharding, **given)
    assert found.steady_bytes == device * BILLION
    assert found.host is not None
    assert found.host.rank_bytes == host * BILLION
    assert found.host.node_bytes == 8 * found.host.rank_bytes
    assert sum(term.bytes for term in found.host.terms) == found.host.rank_bytes
    assert found.ranks[0].host_bytes == found.host.rank_bytes


def test_moments_are_never_pinned_and_the_rest_as_the_framework_does() -> None:
    zero: dict[str, Any] = {"sharding": Sharding.ZERO_2, "offload_optimizer": True}
    pins = {None: 0, False: 0, True: (4 + 4 + 2) * BILLION // 8}
    for pinned, expected in pins.items():
        host = states(**zero, pin_memory=pinned).host
        assert host is not None
        assert host.pinned_bytes == expected
    fsdp = states(Sharding.FSDP2, offload_parameters=True).host
    assert fsdp is not None
    assert fsdp.pinned_bytes == (4 + 4) * BILLION // 8


@pytest.mark.parametrize(("ranks", "given", "expected"), [(16, None, 8), (4, None, 4), (16, 2, 2)])
def test_a_node_has_its_ranks(ranks: int, given: int | None, expected: int) -> None:
    moved: dict[str, Any] = {"offload_optimizer": True, "ranks_per_node": given}
    host = states(Sharding.ZERO_2, ranks=ranks, **moved).host
    assert host is not None
    assert host.ranks_per_node == expected


@pytest.mark.parametrize("sharding", [*DEEPSPEED, *FSDP])
@pytest.mark.parametrize("ranks", [1, 4])
def test_offload_lowers_every_phase_s_states_and_no_term_is_negative(
    sharding: Sharding, ranks: int
) -> None:
    axes: dict[str, Any] = {
        "world_size": ranks,
        "sharding": sharding,
        "reduce_bucket_elements": 1_000_000,
    }
    moved: dict[str, Any] = (
        {"offload_parameters": True} if sharding in FSDP else {"offload_optimizer": True}
    )
    plain, less = answer(**axes), answer(**axes, **moved)
    assert peak(less) < peak(plain)
    assert less.steady_bytes < plain.steady_bytes
    for moment in less.timeline:
        assert min(moment.term_bytes) >= 0, moment
        assert sum(moment.term_bytes) == moment.allocated_bytes
    moments = [each.phase for each in less.timeline if each.phase.endswith("optimizer")]
    assert moments, "the step on the host still has a moment"


def test_what_arrives_from_the_host_is_on_the_device_for_a_moment() -> None:
    axes: dict[str, Any] = {"world_size": 4, "sharding": Sharding.FSDP2}
    kept = {each.name: each.largest_bytes for each in answer(**axes).terms}
    moved = {
        each.name: each.largest_bytes for each in answer(**axes, offload_parameters=True).terms
    }
    head = 32_000 * 1024 + 1024
    assert moved["prefetched units"] > kept["prefetched units"]
    assert moved["prefetched units"] <= kept["prefetched units"] + 4 * (head // 4 + 1024)
    assert "parameters" not in moved


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"sharding": Sharding.FSDP2, "offload_optimizer": True}, "parallelism.offload_optimizer"),
        (
            {"sharding": Sharding.ZERO_2, "offload_parameters": True},
            "parallelism.offload_parameters",
        ),
        ({"offload_parameters": True}, "parallelism.offload_parameters"),
    ],
)
def test_what_no_framework_offers_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        answer(**given)
    assert wrong.value.violations[0].field == field


def unknown(found: Estimate) -> str:
    assert found.reason_code is ReasonCode.SETTING_NOT_MODELLED
    assert found.peak is None
    return found.reason


def test_settings_without_figures_are_unknown_by_name() -> None:
    adafactor = Training(microbatch=1, seq=512, optimizer=Optimizer.ADAFACTOR)
    assert "adafactor on FSDP2's" in unknown(answer(adafactor, sharding=Sharding.FSDP2))
    bits = Training(microbatch=1, seq=512, optimizer=Optimizer.ADAMW_8BIT)
    on_host: dict[str, Any] = {"sharding": Sharding.ZERO_2, "offload_optimizer": True}
    assert "adamw_8bit with a step on the host" in unknown(answer(bits, **on_host))
    early = Training(microbatch=1, seq=512, optimizer_in_backward=True)
    assert "optimizer_in_backward with zero_2" in unknown(answer(early, sharding=Sharding.ZERO_2))
    ddp: dict[str, Any] = {"world_size": 2, "sharding": Sharding.REPLICATED}
    assert "optimizer_in_backward with replicated" in unknown(answer(early, **ddp))
    muon = Training(optimizer=Optimizer.MUON)
    counted = EstimateRequest(parameter_count=BILLION, training=muon)
    assert "muon of a subject without tensors" in unknown(estimate(counted))
    sizes = StateBytes(parameter_bytes=1, gradient_bytes=1, optimizer_bytes=1)
    moved = Parallelism(sharding=Sharding.ZERO_2, world_size=2, offload_optimizer=True)
    only_bytes = EstimateRequest(state_bytes=sizes, parallelism=moved)
    assert "only bytes are known" in unknown(estimate(only_bytes))


def test_paged_moments_are_on_neither_side_for_certain() -> None:
    plain = Training(microbatch=1, seq=512, precision=Precision.BF16)
    paged = Training(
        microbatch=1, seq=512, precision=Precision.BF16, optimizer=Optimizer.PAGED_ADAMW
    )
    found, without = answer(paged), answer(plain)
    assert found.host is not None
    assert [term.name for term in found.host.terms] == ["paged optimizer moments"]
    assert found.host.pinned_bytes == 0
    matrices = 2 * 32_000 * 1024 + 8 * (4 * 1024**2 + 3 * 1024 * 2816)
    assert found.host.rank_bytes == 2 * 4 * matrices
    assert without.host is None
    small = 17 * 1024
    assert found.steady_bytes == without.steady_bytes - 2 * 2 * matrices + 2 * (4 - 2) * small


@pytest.mark.parametrize("sharding", [Sharding.REPLICATED, Sharding.FSDP2])
def test_an_optimizer_in_backward_keeps_no_gradients(sharding: Sharding) -> None:
    late = Training(microbatch=1, seq=32)  # so short that the loss is no peak
    early = replace(late, optimizer_in_backward=True)
    found, plain = answer(early, sharding=sharding), answer(late, sharding=sharding)
    assert peak(found) < peak(plain)
    last = next(each for each in found.timeline if each.phase == "step 2 optimizer")
    names = [term.name for term in found.terms]
    if "gradients" in names:
        assert last.term_bytes[names.index("gradients")] == 0
    gradient = 2 if sharding is Sharding.REPLICATED else 4
    parameters = 2 * 32_000 * 1024 + 8 * (4 * 1024**2 + 3 * 1024 * 2816) + 17 * 1024
    assert plain.steady_bytes - found.steady_bytes == gradient * parameters


def test_a_tied_weight_waits_for_the_second_half_of_its_gradient() -> None:
    tied = Document(
        format=DocumentFormat.HF_CONFIG,
        text=MODEL.text.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'),
    )
    early = Training(microbatch=1, seq=32, optimizer_in_backward=True)
    found = estimate(EstimateRequest(documents=(tied,), training=early))
    place = [term.name for term in found.terms].index("gradients")
    gradients = {
        each.name: each.term_bytes[place]
        for each in found.timeline
        if each.phase == "step 2 backward"
    }
    table, largest = 2 * 32_000 * 1024, 2 * 1024 * 2816
    assert gradients["backward model.layers.3"] == table + largest
    assert gradients["backward embedding"] == 2 * table
    for moment in found.timeline:
        assert min(moment.term_bytes) >= 0
        assert sum(moment.term_bytes) == moment.allocated_bytes


def test_an_optimizer_in_backward_does_not_add_up_gradients() -> None:
    with pytest.raises(InvalidRequestError, match="accumulation 4"):
        Training(accumulation=4, optimizer_in_backward=True)


def test_keywords_fill_the_fields() -> None:
    made = estimate_request(
        parameter_count=1,
        zero=3,
        offload="all",
        ranks_per_node=4,
        optimizer="paged-adamw-8bit",
        optimizer_in_backward=True,
    )
    parallelism, training = made.parallelism, made.training
    assert (parallelism.offload_optimizer, parallelism.offload_parameters) == (True, True)
    assert parallelism.ranks_per_node == 4
    assert training.optimizer is Optimizer.PAGED_ADAMW_8BIT
    assert training.optimizer_in_backward
    with pytest.raises(InvalidRequestError, match="optimizer, all"):
        estimate_request(parameter_count=1, offload="everything")
    none = estimate_request(parameter_count=1, offload="none").parallelism
    assert (none.offload_optimizer, none.offload_parameters) == (False, False)
