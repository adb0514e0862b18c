"""Tapes under autocast against real layers, saved bytes and peaks, on the CPU.

Saved bytes are equal to the byte, the copies of weights included; peaks are never below the
measured ones.
"""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real layers need torch")
pytest.importorskip("transformers", "5", reason="the real layers are those of transformers 5")

from tests.integration import real_layers, tiny_models  # noqa: E402
from tests.integration.live_storages import LiveStorages  # noqa: E402
from torch.autograd.graph import GradientEdge, saved_tensors_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.architecture import Architecture, UnitKind  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.layers import layer_tape  # noqa: E402
from haversack_server.memory.options import BlockOptions, option_table  # noqa: E402
from haversack_server.memory.tape import Tape, measure, saved_storages  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PROFILE = kernel_profile.load("hf-cpu")
TINY = ("llama", "llama with biases", "mistral", "qwen2", "qwen3", "gpt2", "gpt2 with dropout")
OTHERS = (
    "bert",
    "bert with dropout",
    "gemma",
    "gpt_neox",
    "granite",
    "olmo",
    "opt",
    "phi",
    "roberta",
    "smollm3",
    "stablelm",
    "starcoder2",
)
# The CPU has no flash kernel with dropout; SDPA falls back to its parts there.
CASES = [
    (name, attention)
    for name in (*TINY, *OTHERS)
    for attention in ("eager", "sdpa")
    if attention == "eager" or not ("dropout" in name or name == "roberta")
]
FORWARD_SLACK = 1.2  # of a layer under recompute, whose forward is far below its backward
SLACK = 1.06
WHOLE_SLACK = {"bert": 1.15}  # of a head on tiny layers
SCALARS = 8  # the loss and its gradient, alive through the whole backward


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def call_of(name: str, attention: str, microbatch: int) -> tuple[real_layers.Call, Tape]:
    """Return a real layer with what it is called with, in fp32, and our tape of it."""
    if name in TINY:
        model = tiny_models.architecture(name)
        layer = tiny_models.layer(name, attention, torch.float32)
        call = real_layers.Call(layer, *_arguments(name, attention, microbatch))
    else:
        model = real_layers.variants(name)[0]
        call = real_layers.calls(name, attention, torch.float32, microbatch)[0]
    shape = shape_of(model, attention, microbatch)
    return _inner(call.fresh()), layer_tape(model, PROFILE, shape)


def shape_of(model: Architecture, attention: str, microbatch: int) -> Shape:
    return Shape(
        microbatch=microbatch,
        seq=tiny_models.SEQ,
        compute_bytes=4,
        product_bytes=2,
        attention=AttentionKind(attention),
    )


def _inner(call: real_layers.Call) -> real_layers.Call:
    """Return the call with a view for its input: autocast's cache takes every leaf for a weight."""
    if call.args:
        return replace(call, args=(_view(call.args[0]), *call.args[1:]))
    hidden = _view(call.kwargs["hidden_states"])
    return replace(call, kwargs=call.kwargs | {"hidden_states": hidden})


def _view(leaf: Any) -> Any:
    return leaf.view_as(leaf)


def _arguments(
    name: str, attention: str, microbatch: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    seq, model = tiny_models.SEQ, tiny_models.architecture(name)
    mask = torch.zeros(microbatch, 1, seq, seq) if attention == "eager" else None
    arguments: dict[str, Any] = {"attention_mask": mask}
    if not model.learned_positions:
        arguments["position_embeddings"] = tuple(
            torch.randn(1, seq, model.head_dim) for _ in range(2)
        )
    return (torch.randn(microbatch, seq, model.hidden, requires_grad=True),), arguments


def really_saved(call: real_layers.Call) -> int:
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with autocast(), saved_tensors_hooks(pack, lambda tensor: tensor):
        output = call.run(*call.args, **call.kwargs)
    assert output.requires_grad
    for tensor in (*call.tensors(), *call.layer.parameters()):
        storages.pop(tensor.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_a_layer_under_autocast_saves_what_the_real_one_saves(
    name: str, attention: str, microbatch: int
) -> None:
    call, tape = call_of(name, attention, microbatch)
    assert tape.size_of(saved_storages(tape)) == really_saved(call)


@pytest.mark.parametrize("recompute", [False, True], ids=["save", "recompute"])
@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_a_layer_under_autocast_peaks_where_the_real_one_peaks(
    name: str, attention: str, microbatch: int, recompute: bool
) -> None:
    call, tape = call_of(name, attention, microbatch)
    row = measure(tape, save=not recompute)
    retained, forward_peak, backward_peak = measured(call, recompute=recompute)
    # What has the shape of a parameter is left out where it is measured: 1 + weight, in fp32.
    assert retained <= row.retained_bytes <= 1.005 * retained
    most = FORWARD_SLACK if recompute else SLACK
    assert forward_peak <= row.forward_peak_bytes <= most * forward_peak
    assert backward_peak <= row.backward_peak_bytes <= SLACK * backward_peak


def left_out(layer: Any) -> list[Any]:
    """Parameters, and copies of biases, which are below a thousandth of a real model's weights."""
    parameters = list(layer.parameters())
    return [*parameters, *(each.bfloat16() for each in parameters if each.dim() == 1)]


def measured(call: real_layers.Call, *, recompute: bool) -> tuple[int, int, int]:
    """Return what the layer retains, and its peaks forward and backward."""
    known = call.tensors()
    gradient = torch.ones_like(known[0])
    parameters = left_out(call.layer)  # named, since the tracker knows them by address
    with LiveStorages([*known, gradient], parameters) as storages:
        with autocast():
            if recompute:
                output = checkpoint(call.run, *call.args, use_reentrant=False, **call.kwargs)
            else:
                output = call.run(*call.args, **call.kwargs)
            forward_peak = storages.peak_bytes
        retained = storages.live_bytes
        # The next block is done with the output when this block's backward begins.
        last = output.mul(1)
        edge = GradientEdge(last.grad_fn, 0)
        del output, last
        storages.peak_bytes = storages.live_bytes
        torch.autograd.backward(edge, gradient)
        return retained, forward_peak, storages.peak_bytes


@pytest.mark.parametrize("recompute", [False, True], ids=["save", "recompute"])
@pytest.mark.parametrize(
    ("name", "attention"),
    [("llama", "sdpa"), ("qwen2", "sdpa"), ("gpt2", "sdpa"), ("gpt2", "eager"), ("bert", "sdpa")],
)
def test_a_whole_model_under_autocast_peaks_where_the_chain_of_its_blocks_does(
    name: str, attention: str, recompute: bool
) -> None:
    if name == "bert":
        described = real_layers.architecture(name)
        model = real_layers.model(name, attention, torch.float32)
    else:
        described = tiny_models.architecture(name)
        model = tiny_models.causal_lm(name, attention, torch.float32)
    if recompute:
        tiny_models.checkpoint_layers(model)
    tokens = torch.randint(0, 100, (2, tiny_models.SEQ))
    parameters = left_out(model)
    with LiveStorages([tokens, *model.buffers()], parameters) as storages:
        with autocast():
            outputs = model(input_ids=tokens, labels=tokens)
            forward_peak = storages.peak_bytes
        storages.peak_bytes = storages.live_bytes
        outputs.loss.backward()
        backward_peak = storages.peak_bytes

    shape = shape_of(described, attention, 2)
    blocks = option_table(described, PROFILE, shape)
    option = "recompute" if recompute else "save"
    forward, backward = chain_peaks(blocks, option)
    most = WHOLE_SLACK.get(name, 1.06)
    assert forward_peak <= forward <= most * forward_peak
    assert backward_peak <= backward <= most * backward_peak


def chain_peaks(blocks: tuple[BlockOptions, ...], option: str) -> tuple[int, int]:
    """Return the peaks of a chain; copies of weights stay in autocast's cache through forward."""
    retained = cached = forward = backward = 0
    held = blocks[-1].held_by_caller_bytes
    for block in blocks:
        row = block.option(option if block.kind is UnitKind.LAYER else "save")
        forward = max(forward, retained + cached + row.forward_peak_bytes)
        backward = max(backward, retained + held + SCALARS + row.backward_peak_bytes)
        retained, cached = retained + row.retained_bytes, cached + row.cached_bytes
    return forward, backward
