"""Passes of a stage by hand, against a slow walk, and by the counts that the schedules publish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack.parallelism import PipelineSchedule
from haversack_server.memory.pipeline import Chunk, Pass, Pipeline, passes

INTERLEAVED = PipelineSchedule.INTERLEAVED
MIB = 2**20


def interleaved(stage: int, stages: int, chunks: int, **sizes: int) -> Pipeline:
    made = tuple(Chunk(start=each, stop=each + 1, **sizes) for each in range(chunks))
    return Pipeline(stage=stage, stages=stages, schedule=INTERLEAVED, chunks=made)


def of(pipeline: Pipeline, microbatches: int, step: int = 2) -> dict[tuple[str, bool], Pass]:
    blocks = len(pipeline.chunks) or 1
    found = passes(pipeline, [10] * blocks, [0] * (blocks + 1), microbatches, step=step)
    return {(each.name, each.forward): each for each in found}


@pytest.mark.parametrize("microbatches", [1, 2, 7])
def test_one_stage_has_nothing_in_flight_beside_the_running_microbatch(microbatches: int) -> None:
    found = passes(Pipeline(), [5, 7, 3], [6, 4, 2, 0], microbatches, step=2)
    names = ["", ""]
    if microbatches > 1:
        names = ["first microbatch"] * 2 + ["later microbatch"] * 2
    assert [each.name for each in found] == names
    assert [each.forward for each in found] == [True, False] * (len(names) // 2)
    assert {(each.start, each.stop) for each in found} == {(0, 3)}
    assert {each.in_flight_bytes + each.stage_bytes for each in found} == {0}
    assert [each.gradients_from for each in found] == [3, 3, 0, 0][: len(names)]


@pytest.mark.parametrize(
    ("stage", "stages", "microbatches", "in_flight"),
    [(0, 4, 8, 4), (1, 4, 8, 3), (2, 4, 8, 2), (3, 4, 8, 1), (0, 4, 3, 3), (0, 8, 1, 1)],
)
def test_1f1b_holds_stages_behind_it_or_all_microbatches(
    stage: int, stages: int, microbatches: int, in_flight: int
) -> None:
    """min(P - p, M): arXiv 2104.04473, section 2.2.1 (PipeDream-Flush)."""
    pipeline = Pipeline(stage=stage, stages=stages)
    assert pipeline.most_in_flight(microbatches) == in_flight
    first = passes(pipeline, [100], [0, 0], microbatches, step=2)[0]
    assert first.in_flight_bytes == 100 * (in_flight - 1)


@pytest.mark.parametrize(("microbatches", "others"), [(4, 2), (5, 3), (8, 3)])
def test_a_later_backward_has_a_forward_before_it_only_where_one_is_left(
    microbatches: int, others: int
) -> None:
    # Stage 0 of 4, M = 4: F F F F B B B B, so two others wait at the second backward;
    # M = 5: F F F F B F B B B B, so three do.
    found = of(Pipeline(stage=0, stages=4), microbatches)
    assert found["first microbatch", False].in_flight_bytes == 10 * 3
    assert found["later microbatch", False].in_flight_bytes == 10 * others


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3, 8])
def test_interleaved_holds_the_warm_up_and_one_more(stages: int, chunks: int) -> None:
    """Megatron-LM, schedules.py, get_pp_rank_microbatches: the warm-up, then one more forward."""
    for stage in range(stages):
        warm_up = (stages - stage - 1) * 2 + (chunks - 1) * stages
        found = interleaved(stage, stages, chunks).most_in_flight(microbatches=4 * stages)
        assert found == warm_up + 1


def test_interleaved_by_hand() -> None:
    # Stage 1 of 2 with two chunks: forwards 0 0 1 1 0 0 1 1, of which two are warm-up.
    # F0 F0 | F1 B1, F1 B1, F0 B0, F0 B0, F1 B1, F1 B1 | B0 B0.
    found = of(interleaved(1, 2, 2, received_bytes=1, parked_bytes=4), 4)
    first = found["first microbatch of chunk 1", True]
    assert first.in_flight_bytes == 2 * (10 + 1)
    assert first.stage_bytes == 1  # both chunks have replaced what they had parked
    assert found["first microbatch of chunk 1", False].gradients_from == 2
    assert found["later microbatch of chunk 0", False].gradients_from == 0


def test_buffers_stand_for_every_microbatch_from_the_first_pass_on() -> None:
    pipeline = interleaved(1, 2, 2, buffer_bytes=3)
    assert {each.stage_bytes for each in of(pipeline, 5).values()} == {5 * 2 * 3}
    assert pipeline.between_steps_bytes(5) == 30


def test_what_is_parked_waits_for_the_next_forward_of_its_chunk() -> None:
    # Stage 1 of 2, two microbatches: F0 F0 | F1 B1, F1 B1 | B0 B0.
    pipeline = interleaved(1, 2, 2, received_bytes=1, parked_bytes=4)
    assert of(pipeline, 2)["first microbatch of chunk 0", True].stage_bytes == 1 + 4
    assert of(pipeline, 2, step=1)["first microbatch of chunk 0", True].stage_bytes == 1
    assert of(pipeline, 2)["first microbatch of chunk 0", False].stage_bytes == 1 + 4
    assert pipeline.parked_bytes() == 8


def test_gpipe_holds_every_microbatch() -> None:
    pipeline = Pipeline(stage=1, stages=2, schedule=PipelineSchedule.GPIPE)
    assert pipeline.most_in_flight(16) == 16


def test_what_was_sent_is_not_kept_and_what_was_received_is() -> None:
    chunk = Chunk(start=0, stop=2, received_bytes=5, sent_bytes=3)
    pipeline = Pipeline(stage=0, stages=3, chunks=(chunk,))
    found = passes(pipeline, [10, 20], [0, 0, 0], 9, step=2)
    assert found[0].in_flight_bytes == 2 * (5 + 30 - 3)
    assert found[0].stage_bytes == 5


@given(
    stages=st.integers(2, 6),
    chunks=st.integers(2, 4),
    groups=st.integers(3, 6),
    more=st.integers(0, 5),
    data=st.data(),
)
def test_more_microbatches_than_a_few_groups_change_nothing(
    stages: int, chunks: int, groups: int, more: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    pipeline = interleaved(stage, stages, chunks, received_bytes=3, parked_bytes=7)
    few = groups * stages + more % stages
    many = few + 5 * stages
    kept = data.draw(st.lists(st.integers(0, 99), min_size=chunks, max_size=chunks))
    gradients = [0] * (chunks + 1)
    first = passes(pipeline, kept, gradients, few, step=2)
    assert first == passes(pipeline, kept, gradients, many, step=2)


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 20), schedule=st.sampled_from([1, 3]))
def test_earlier_stages_never_hold_less(stages: int, microbatches: int, schedule: int) -> None:
    held = [
        Pipeline(stage=stage, stages=stages, schedule=PipelineSchedule(schedule)).most_in_flight(
            microbatches
        )
        for stage in range(stages)
    ]
    assert held == sorted(held, reverse=True)
