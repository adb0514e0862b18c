"""What the tapes say, against real layers and models that run forward and backward on the CPU.

Saved bytes are equal to the byte; peaks are never below the measured ones, and at most SLACK above:
1 % for a layer (nearly all are equal), and for a layer of experts under recompute 4 %, since the
checkpoint frees an operand of the last product a little earlier than the tape.
"""

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real layers need torch")
pytest.importorskip("transformers", "5", reason="the real layers are those of transformers 5")

from tests.integration import tiny_models  # noqa: E402
from tests.integration.live_storages import LiveStorages  # noqa: E402
from torch.autograd.graph import GradientEdge, saved_tensors_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.architecture import UnitKind  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.layers import layer_tape  # noqa: E402
from haversack_server.memory.options import BlockOptions, option_table  # noqa: E402
from haversack_server.memory.tape import measure, saved_storages  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PROFILE = kernel_profile.load("hf-cpu")
HIDDEN = 64
SCALARS = 8  # the loss and its gradient, alive through the whole backward
CASES = [
    *((name, "eager") for name in tiny_models.CONFIGS),
    *((name, "sdpa") for name in tiny_models.CONFIGS if name not in {"gemma2"}),
]
# The CPU has no flash kernel with dropout; SDPA falls back to its parts there.
CASES = [row for row in CASES if row[1] == "eager" or "dropout" not in row[0]]
DTYPES = [torch.bfloat16, torch.float32]


def slack(name: str, recompute: bool) -> float:
    return 1.04 if name == "mixtral" and recompute else 1.01


@dataclass(frozen=True)
class Inputs:
    """A layer's input and what the model hands to every layer."""

    hidden: Any
    arguments: dict[str, Any]

    @property
    def known(self) -> list[Any]:
        tensors = [row for row in self.arguments.values() if isinstance(row, torch.Tensor)]
        tables = self.arguments.get("position_embeddings", ())
        return [self.hidden, *tensors, *tables]


def inputs(name: str, attention: str, microbatch: int, dtype: Any) -> Inputs:
    seq = tiny_models.SEQ
    model = tiny_models.architecture(name)
    arguments: dict[str, Any] = {"attention_mask": None}
    if attention == "eager":
        arguments["attention_mask"] = torch.zeros(microbatch, 1, seq, seq, dtype=dtype)
    if not model.learned_positions:
        arguments["position_embeddings"] = tuple(
            torch.randn(1, seq, model.head_dim, dtype=dtype) for _ in range(2)
        )
    hidden = torch.randn(microbatch, seq, HIDDEN, dtype=dtype, requires_grad=True)
    return Inputs(hidden, arguments)


def shape(attention: str, microbatch: int, dtype: Any) -> Shape:
    return Shape(
        microbatch=microbatch,
        seq=tiny_models.SEQ,
        compute_bytes=dtype.itemsize,
        attention=AttentionKind(attention),
    )


def really_saved(name: str, attention: str, microbatch: int, dtype: Any) -> int:
    """Run a real layer forward; give the bytes that autograd keeps, its parameters excluded."""
    layer = tiny_models.layer(name, attention, dtype)
    given = inputs(name, attention, microbatch, dtype)
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(given.hidden, **given.arguments)
    assert output.shape == given.hidden.shape
    for tensor in (*given.known, *layer.parameters()):
        storages.pop(tensor.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())


def said_to_be_saved(name: str, attention: str, microbatch: int, dtype: Any) -> int:
    tape = layer_tape(tiny_models.architecture(name), PROFILE, shape(attention, microbatch, dtype))
    return tape.size_of(saved_storages(tape))


@pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "fp32"])
@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_a_layer_saves_what_the_real_one_saves(
    name: str, attention: str, microbatch: int, dtype: Any
) -> None:
    given = (name, attention, microbatch, dtype)
    assert said_to_be_saved(*given) == really_saved(*given)


@pytest.mark.parametrize("recompute", [False, True], ids=["save", "recompute"])
@pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "fp32"])
@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_a_layer_peaks_where_the_real_one_peaks(
    name: str, attention: str, microbatch: int, dtype: Any, recompute: bool
) -> None:
    layer = tiny_models.layer(name, attention, dtype)
    given = inputs(name, attention, microbatch, dtype)

    def forward(hidden: Any) -> Any:
        return layer(hidden, **given.arguments)

    with LiveStorages(given.known, layer.parameters()) as storages:
        if recompute:
            output = checkpoint(forward, given.hidden, use_reentrant=False)
        else:
            output = forward(given.hidden)
        retained, forward_peak = storages.live_bytes, storages.peak_bytes
        # The next block is done with the output when this block's backward begins.
        edge, gradient = GradientEdge(output.grad_fn, 0), [torch.ones_like(output)]
        del output
        storages.peak_bytes = storages.live_bytes
        torch.autograd.backward(edge, gradient.pop())
        backward_peak = storages.peak_bytes

    tape = layer_tape(tiny_models.architecture(name), PROFILE, shape(attention, microbatch, dtype))
    row = measure(tape, save=not recompute)
    most = slack(name, recompute)
    assert retained <= row.retained_bytes <= most * retained
    assert forward_peak <= row.forward_peak_bytes <= most * forward_peak
    assert backward_peak <= row.backward_peak_bytes <= most * backward_peak


def chain_peaks(blocks: tuple[BlockOptions, ...], option: str, held_bytes: int) -> tuple[int, int]:
    """Return the forward and the backward peak of a chain: retained before, and the block's own."""
    retained = forward = backward = 0
    for block in blocks:
        row = block.option(option if block.kind is UnitKind.LAYER else "save")
        forward = max(forward, retained + row.forward_peak_bytes)
        backward = max(backward, retained + held_bytes + row.backward_peak_bytes)
        retained += row.retained_bytes
    return forward, backward


@pytest.mark.parametrize("vocab", [40, 1511], ids=["small vocabulary", "large vocabulary"])
@pytest.mark.parametrize("held", [False, True], ids=["logits dropped", "logits held"])
@pytest.mark.parametrize("recompute", [False, True], ids=["save", "recompute"])
@pytest.mark.parametrize(
    ("name", "attention"),
    [("llama", "sdpa"), ("qwen3", "eager"), ("gemma2", "eager"), ("gpt2", "sdpa")],
)
def test_a_whole_model_peaks_where_the_chain_of_its_blocks_does(
    name: str, attention: str, recompute: bool, held: bool, vocab: int
) -> None:
    microbatch, dtype = 2, torch.bfloat16
    model = tiny_models.causal_lm(name, attention, dtype, vocab_size=vocab)
    if recompute:
        tiny_models.checkpoint_layers(model)
    tokens = torch.randint(0, vocab, (microbatch, tiny_models.SEQ))
    labels = tokens.clone()

    with LiveStorages([tokens, labels, *model.buffers()], model.parameters()) as storages:
        outputs = model(input_ids=tokens, labels=labels)
        forward_peak = storages.peak_bytes
        loss = outputs.loss
        if not held:
            del outputs
        storages.peak_bytes = storages.live_bytes
        loss.backward()
        backward_peak = storages.peak_bytes

    blocks = option_table(
        tiny_models.architecture(name, vocab_size=vocab),
        PROFILE,
        shape(attention, microbatch, dtype),
    )
    logits = blocks[-1].logits
    assert logits is not None
    forward, backward = chain_peaks(
        blocks,
        "recompute" if recompute else "save",
        SCALARS + (logits.held_by_caller_bytes if held else 0),
    )
    # Above: a saved layer's output counts, which the next layer's norm in fp32 does not need.
    assert forward_peak <= forward <= 1.06 * forward_peak
    assert backward_peak <= backward <= 1.06 * backward_peak


def test_sdpa_under_a_window_keeps_no_more_than_the_tape() -> None:
    name, dtype, window = "mistral", torch.bfloat16, 32
    model = tiny_models.causal_lm(name, "sdpa", dtype, vocab_size=40, sliding_window=window)
    tokens = torch.randint(0, 40, (2, tiny_models.SEQ))
    with LiveStorages([tokens, *model.buffers()], model.parameters()) as storages:
        loss = model(input_ids=tokens, labels=tokens).loss
        retained = storages.live_bytes
        storages.peak_bytes = retained
        loss.backward()
        backward_peak = storages.peak_bytes
    blocks = option_table(
        tiny_models.architecture(name, vocab_size=40, sliding_window=window),
        PROFILE,
        shape("sdpa", 2, dtype),
    )
    total = sum(block.option("save").retained_bytes for block in blocks)
    _, backward = chain_peaks(blocks, "save", SCALARS)
    assert retained <= total <= 1.06 * retained
    assert backward_peak <= backward <= 1.06 * backward_peak
