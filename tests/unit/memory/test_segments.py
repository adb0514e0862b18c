"""Segments of several layers by hand: what each layer needs depends on its place."""

from haversack.parallelism import Parallelism
from haversack.run import (
    Document,
    DocumentFormat,
    Recompute,
    RecomputeMethod,
    Training,
    TrainingRun,
)
from haversack_server.memory.chain import ChainBlock, Option
from haversack_server.memory.model_run import ModelRun, model_run

DOCUMENT = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": 64, "tie_word_embeddings": false}""",
)


def run_of(layers: int, method: RecomputeMethod = RecomputeMethod.UNIFORM, pp: int = 1) -> ModelRun:
    training = Training(
        microbatch=1,
        seq=32,
        recompute=Recompute.FULL,
        recompute_method=method,
        recompute_layers=layers,
    )
    return model_run(
        TrainingRun(documents=(DOCUMENT,), training=training, parallelism=Parallelism(pp=pp))
    )


def option(block: ChainBlock, name: str) -> Option:
    return next(each for each in block.options if each.name == name)


def layer(block: ChainBlock) -> bool:
    return len(block.options) > 1


def test_on_one_stage_a_segment_keeps_its_input_at_the_first_layer() -> None:
    plain = run_of(1).stages[0].blocks[1]
    save, full = option(plain, "save"), option(plain, "recompute")
    first, second, third = (option(block, "recompute") for block in run_of(3).stages[0].blocks[1:4])
    stream = plain.input_gradient_bytes
    assert (plain.passing_input_bytes, full.retained_bytes) == (stream, stream)
    assert [each.retained_bytes for each in (first, second, third)] == [stream, 0, 0]
    assert {each.forward_peak_bytes for each in (first, second, third)} == {full.forward_peak_bytes}
    assert first.backward_peak_bytes == save.backward_peak_bytes
    # The first layer's input stands before the others already.
    assert second.backward_peak_bytes == save.retained_bytes - stream + save.backward_peak_bytes
    rebuilt = 2 * save.retained_bytes - stream + save.forward_peak_bytes + stream
    through = 2 * save.retained_bytes - stream + save.backward_peak_bytes
    assert third.backward_peak_bytes == max(rebuilt, through)


def test_on_a_pipeline_a_segment_keeps_its_output_at_the_last_layer() -> None:
    plain = run_of(1, pp=2).stages[0].blocks[1]
    save, full = option(plain, "save"), option(plain, "recompute")
    segment = run_of(3, pp=2).stages[0].blocks[1:4]
    first, second, third = (option(block, "recompute") for block in segment)
    stream = plain.output_gradient_bytes
    assert [each.retained_bytes for each in (first, second, third)] == [0, 0, stream]
    assert first.forward_peak_bytes == full.forward_peak_bytes
    assert second.forward_peak_bytes == full.forward_peak_bytes + stream
    assert second.backward_peak_bytes == save.retained_bytes + save.backward_peak_bytes
    rebuilt = 2 * save.retained_bytes + save.forward_peak_bytes + stream
    through = 2 * save.retained_bytes + save.backward_peak_bytes
    assert third.backward_peak_bytes == max(rebuilt, through)


def test_segments_do_not_go_beyond_a_stage() -> None:
    stages = run_of(2, pp=2).stages
    retained = [
        [
            option(block, "recompute").retained_bytes > 0
            for block in stage.blocks
            if len(block.options) > 1
        ]
        for stage in stages
    ]
    assert retained == [[False, True, True], [False, True, True]]


def test_longer_segments_keep_less_and_peak_higher_in_their_backward() -> None:
    kept, peaks = [], []
    for layers in (1, 2, 3, 6):
        blocks = run_of(layers).stages[0].blocks[1:-1]
        kept.append(sum(option(block, "recompute").retained_bytes for block in blocks))
        peaks.append(max(option(block, "recompute").backward_peak_bytes for block in blocks))
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == 4
    assert peaks == sorted(peaks)


def test_blocks_and_segments_of_one_are_each_layer_by_itself() -> None:
    for run in (run_of(1), run_of(3, RecomputeMethod.BLOCK)):
        assert run.stages == (run.chain,)


def test_equal_stages_stay_equal() -> None:
    run = run_of(2, pp=3)
    lines = run.rank_lines(Training(recompute=Recompute.FULL))
    assert [line.stages for line in lines] == [(0,), (1,), (2,)]
    assert run.stages[0].blocks[1].options is run.stages[1].blocks[0].options
