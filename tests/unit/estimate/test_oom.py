"""An out-of-memory error in a run: which tensor, which setting, which assumption."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import (
    EstimateQuestion,
    OomCauseKind,
    OomExplanation,
    OomMatchKind,
    OutOfMemory,
)
from haversack.run import (
    Attention,
    Device,
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Training,
)
from haversack.units import GIB, MIB
from haversack_server.estimate.answer import estimate

HF = Path(__file__).parents[2] / "golden" / "hf"
SHORT = Training(seq=512)
SHARDED = Parallelism(world_size=64, sharding=Sharding.ZERO_3)
LLAMA = json.loads((HF / "llama3_8b.json").read_text())


def explained(
    oom: OutOfMemory | str,
    training: Training | None = None,
    parallelism: Parallelism | None = None,
    memory_bytes: int | None = None,
    **config: Any,
) -> OomExplanation:
    """Explain an error in a run of Llama 3 8B, some of whose sizes may be others."""
    answer = estimate(
        EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(LLAMA | config)),),
            training=training or Training(seq=8192),
            parallelism=parallelism or Parallelism(),
            device=Device(memory_bytes=memory_bytes),
            questions=(EstimateQuestion.BRIEF,),
            oom=OutOfMemory(text=oom) if isinstance(oom, str) else oom,
        )
    )
    assert answer.oom is not None
    return answer.oom


def kinds(found: OomExplanation) -> list[OomCauseKind]:
    return [cause.kind for cause in found.causes]


def test_logits_in_fp32_are_found() -> None:
    found = explained("Tried to allocate 3.91 GiB")
    first = found.matches[0]
    assert (first.tensor, first.kind) == ("logits in fp32", OomMatchKind.EXACT)
    assert first.bytes == 8192 * 128_256 * 4
    assert first.phases == ("loss", "backward")
    assert "8,192 tokens x 128,256" in found.summary


@pytest.mark.parametrize(("requested_mib", "found"), [(48, False), (50, True), (52, False)])
def test_a_request_in_bytes_is_matched_as_the_allocator_rounds(
    requested_mib: int, found: bool
) -> None:
    """Logits of 100 tokens in fp32 have 48.9 MiB, for which PyTorch asks 50 MiB."""
    given = explained(OutOfMemory(requested_bytes=requested_mib * MIB), Training(seq=100))
    exact = [each.tensor for each in given.matches if each.kind is OomMatchKind.EXACT]
    assert ("logits in fp32" in exact) is found


# ms-swift issue 6966: 49 GiB asked for fp32 logits of 151,936 columns, at a length of 32,768.
def test_a_sequence_that_is_longer_than_configured_is_named() -> None:
    found = explained("Tried to allocate 49.00 GiB", Training(seq=32_768), vocab_size=151_936)
    first = found.matches[0]
    assert first.kind is OomMatchKind.IMPLIED
    assert "86,571 tokens at once, 2.64 times the 32,768" in first.implies
    assert OomCauseKind.OTHER_SETTING in kinds(found)


# NeMo Automodel issue 2985: 9.47 GiB = 2 x 248,320 x 5,120 x 4 in the root's reduction.
def test_embedding_and_head_in_the_root_unit_are_named() -> None:
    found = explained(
        "Tried to allocate 9.47 GiB",
        Training(seq=4096, precision=Precision.FP32_BF16_COMPUTE),
        Parallelism(world_size=64, sharding=Sharding.FSDP2),
        vocab_size=248_320,
        hidden_size=5120,
        num_attention_heads=40,
        head_dim=128,
    )
    assert any("one root unit" in each.implies for each in found.matches)
    root = next(each for each in found.matches if "root unit" in each.tensor)
    # The head's unit has the final norm too.
    assert root.bytes == (2 * 248_320 * 5120 + 5120) * 4


# DeepSpeed on a 7B model: 6,738,415,616 / 8 parameters x 4 bytes print as 3.14 GiB.
def test_the_optimizers_shard_is_found() -> None:
    config = json.loads((HF / "llama2_7b.json").read_text())
    found = explained(
        "Tried to allocate 3.14 GiB",
        Training(seq=512, optimizer=Optimizer.ADAMW_FOREACH),
        Parallelism(world_size=8, sharding=Sharding.ZERO_2),
        **config,
    )
    assert any("the rank's shard" in each.tensor for each in found.matches)
    shard = next(each for each in found.matches if "the rank's shard" in each.tensor)
    assert shard.bytes == 6_738_415_616 // 8 * 4
    assert "optimizer" in shard.phases


# llama-cookbook issue 100: a whole 7B model in fp32 at wrapping.
def test_a_whole_model_on_every_rank_is_another_setting() -> None:
    config = json.loads((HF / "llama2_7b.json").read_text())
    sharded = Parallelism(world_size=8, sharding=Sharding.FSDP2)
    found = explained("Tried to allocate 25.10 GiB", Training(seq=512), sharded, **config)
    assert any("before it is sharded" in each.implies for each in found.matches)


def test_tensors_that_are_made_where_the_job_was_come_first() -> None:
    # A stream of 8,192 x 4,096 in bf16 has the bytes of a weight of 4,096 x 4,096 in fp32.
    size = 8192 * 4096 * 2
    found = explained(OutOfMemory(requested_bytes=size, phase="step 2 optimizer step")).matches
    assert len(found) > 1
    made = ["optimizer" in each.phases for each in found]
    assert made == sorted(made, reverse=True)
    assert any(made)


def test_attention_scores_imply_another_kernel() -> None:
    size = OutOfMemory(requested_bytes=32 * 8192 * 8192 * 2)
    implied = next(each for each in explained(size).matches if "scores" in each.tensor)
    assert implied.kind is OomMatchKind.IMPLIED
    assert "not the flash kernel" in implied.implies
    eager = explained(size, Training(seq=8192, attention=Attention.EAGER))
    exact = next(each for each in eager.matches if "scores" in each.tensor)
    assert exact.kind is OomMatchKind.EXACT


@pytest.mark.parametrize(("size", "words"), [(2 * MIB, "up to 1 MiB"), (20 * MIB, "to 10 MiB")])
def test_a_small_request_names_no_tensor(size: int, words: str) -> None:
    found = explained(OutOfMemory(requested_bytes=size))
    assert found.matches == ()
    assert words in found.summary


def test_where_nothing_matches_it_says_so() -> None:
    found = explained(OutOfMemory(requested_bytes=123_456_789))
    assert found.matches == ()
    assert found.causes == ()
    assert "no tensor of this run has 117.74 MiB" in found.summary


def test_the_allocators_rounding_to_2_mib_is_allowed_for() -> None:
    size = 3 * 8192 * 128_256 * 4 // 3
    rounded = -(-size // (2 * MIB)) * 2 * MIB
    assert explained(OutOfMemory(requested_bytes=rounded)).matches
    assert not [
        each
        for each in explained(OutOfMemory(requested_bytes=rounded + 1)).matches
        if each.kind is OomMatchKind.EXACT
    ]


def test_fragmentation_needs_enough_unused_bytes() -> None:
    figures = OutOfMemory(
        requested_bytes=2 * GIB, allocated_bytes=10 * GIB, total_bytes=80 * GIB, free_bytes=0
    )
    pieces = explained(replace(figures, unallocated_bytes=3 * GIB), SHORT, SHARDED)
    assert kinds(pieces)[0] is OomCauseKind.FRAGMENTATION
    assert "expandable_segments" in pieces.causes[0].remedy
    full = explained(replace(figures, unallocated_bytes=GIB), SHORT, SHARDED)
    assert OomCauseKind.FRAGMENTATION not in kinds(full)


def test_other_processes_and_limits_are_seen() -> None:
    figures = OutOfMemory(
        requested_bytes=3 * GIB, total_bytes=80 * GIB, free_bytes=GIB, process_bytes=30 * GIB
    )
    found = explained(figures)
    # 3 GiB would also be logits of more tokens, in the compute type.
    assert kinds(found) == [
        OomCauseKind.OTHER_PROCESS,
        OomCauseKind.OTHER_SETTING,
        OomCauseKind.EXPECTED_PEAK,
    ]
    assert found.causes[0].bytes == 49 * GIB
    limited = OutOfMemory(requested_bytes=3 * GIB, total_bytes=80 * GIB, allowed_bytes=20 * GIB)
    assert OomCauseKind.PROCESS_LIMIT in kinds(explained(limited))


def test_a_device_that_is_smaller_than_said_comes_first() -> None:
    figures = OutOfMemory(requested_bytes=3 * GIB, total_bytes=40 * GIB)
    found = explained(figures, memory_bytes=80 * GIB)
    assert kinds(found)[0] is OomCauseKind.SMALLER_DEVICE
    assert found.causes[0].bytes == 40 * GIB


def test_what_lies_outside_the_allocator_is_seen() -> None:
    figures = OutOfMemory(
        requested_bytes=3 * GIB,
        process_bytes=20 * GIB,
        allocated_bytes=8 * GIB,
        unallocated_bytes=0,
    )
    outside = next(
        cause for cause in explained(figures).causes if cause.kind is OomCauseKind.OUTSIDE_ALLOCATOR
    )
    assert outside.bytes == 12 * GIB


def test_the_peak_is_held_against_the_estimate() -> None:
    above = explained(OutOfMemory(requested_bytes=MIB, allocated_bytes=900 * GIB), SHORT)
    assert kinds(above) == [OomCauseKind.ABOVE_ESTIMATE]
    # States alone are 120 GiB on one rank.
    within = OutOfMemory(requested_bytes=GIB, allocated_bytes=121 * GIB, total_bytes=80 * GIB)
    assert kinds(explained(within, SHORT))[0] is OomCauseKind.EXPECTED_PEAK
    early = OutOfMemory(requested_bytes=GIB, allocated_bytes=78 * GIB, total_bytes=80 * GIB)
    on_its_way = explained(early, SHORT).causes[0]
    assert on_its_way.kind is OomCauseKind.EXPECTED_PEAK
    assert "on the way to an expected peak" in on_its_way.reason


def test_a_short_error_is_held_against_the_device() -> None:
    line = "Tried to allocate 9.11 GiB. GPU 0 has a total capacity of {} of which 1.42 GiB is free."
    small = explained(line.format("79.15 GiB"), SHORT)
    assert kinds(small)[-1] is OomCauseKind.EXPECTED_PEAK
    assert "which the device may not hold" in small.summary
    assert OomCauseKind.EXPECTED_PEAK not in kinds(explained(line.format("400.00 GiB"), SHORT))


def test_an_error_is_explained_by_its_own_figures_where_the_run_is_not_known() -> None:
    oom = OutOfMemory(requested_bytes=2 * GIB, allocated_bytes=GIB, unallocated_bytes=3 * GIB)
    answer = estimate(EstimateRequest(parameter_count=10**9, oom=oom))
    assert answer.oom is not None
    assert kinds(answer.oom) == [OomCauseKind.FRAGMENTATION]
    assert answer.oom.matches == ()


def test_an_error_without_a_size_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="Tried to allocate"):
        explained("RuntimeError: shape mismatch")
