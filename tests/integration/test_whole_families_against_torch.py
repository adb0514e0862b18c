"""Whole models of families that are not Llama's, against the chain of their blocks on the CPU.

The chain's peaks are never below the measured ones. They are above where a block's last transients
and the next block's first are not alive together, and where masks are counted to the end.
"""

import pytest

torch = pytest.importorskip("torch", reason="the real models need torch")
pytest.importorskip("transformers", "5", reason="the real models are those of transformers 5")

from tests.integration import real_layers  # noqa: E402
from tests.integration.live_storages import LiveStorages  # noqa: E402

from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.options import option_table  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PROFILE = kernel_profile.load("hf-cpu")
SCALARS = 8  # the loss and its gradient, alive through the whole backward
MICROBATCH = 2


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("bert", "eager"),
        ("bert with dropout", "eager"),
        ("roberta", "sdpa"),
        ("vit", "sdpa"),
        ("t5", "eager"),
        ("t5, gated", "eager"),
        ("gpt_neox", "sdpa"),
        ("gptj", "eager"),
        ("opt", "sdpa"),
        ("bloom", "eager"),
        ("gemma3", "eager"),
        ("granite", "sdpa"),
        ("cohere", "sdpa"),
        ("olmo2", "sdpa"),
        ("phi3", "sdpa"),
        ("qwen2_moe", "sdpa"),
        ("deepseek_v3", "eager"),
    ],
)
def test_a_whole_model_peaks_where_the_chain_of_its_blocks_does(name: str, attention: str) -> None:
    dtype = torch.bfloat16
    model = real_layers.model(name, attention, dtype)
    given = real_layers.inputs(name, dtype, MICROBATCH)
    known = [*given.values(), *model.buffers()]
    with LiveStorages(known, model.parameters()) as storages:
        loss = model(**given).loss
        forward_peak = storages.peak_bytes
        storages.peak_bytes = storages.live_bytes
        loss.backward()
        backward_peak = storages.peak_bytes

    described = real_layers.architecture(name)
    shape = Shape(
        microbatch=MICROBATCH,
        seq=described.fixed_seq or real_layers.SEQ,
        compute_bytes=dtype.itemsize,
        attention=AttentionKind(attention),
        target_seq=real_layers.TARGET_SEQ if described.encoder_layers else 0,
    )
    retained = forward = backward = 0
    for block in option_table(described, PROFILE, shape):
        row = block.option("save")
        forward = max(forward, retained + row.forward_peak_bytes)
        backward = max(backward, retained + SCALARS + row.backward_peak_bytes)
        retained += row.retained_bytes
    assert forward_peak <= forward <= 1.2 * forward_peak
    assert backward_peak <= backward <= 1.2 * backward_peak
