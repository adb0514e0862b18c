"""Tapes under autocast against real layers, saved bytes and peaks, on the CPU.

Saved bytes are equal to the byte, the copies of weights included; peaks are never below the
measured ones.
"""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real layers need torch")
pytest.importorskip("transformers", "5", reason="the real layers are those of transformers 5")

from tests.integration import real_layers, tiny_models  # noqa: E402
from tests.integration.live_storages import LiveStorages  # noqa: E402
from torch.autograd.graph import GradientEdge, saved_tensors_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.layers import layer_tape  # noqa: E402
from haversack_server.memory.tape import Tape, measure, saved_storages  # noqa: E402

PROFILE = kernel_profile.load("hf-cpu")
TINY = ("llama", "llama with biases", "mistral", "qwen2", "qwen3", "gpt2", "gpt2 with dropout")
WHOLE = ("bert", "bert with dropout", "roberta", "opt", "gpt_neox", "phi3", "olmo2", "gemma", "gemma3",
    "granite", "smollm3", "starcoder2", "phi", "vit", "stablelm", "olmo", "cohere")
CASES = [
    (name, attention)
    for name in (*TINY, *WHOLE)
    for attention in ("eager", "sdpa")
    if attention == "eager" or "dropout" not in name
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


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
    shape = Shape(
        microbatch=microbatch,
        seq=model.fixed_seq or tiny_models.SEQ,
        compute_bytes=4,
        product_bytes=2,
        attention=AttentionKind(attention),
    )
    return call.fresh(), layer_tape(model, PROFILE, shape)


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
    print(retained, row.retained_bytes, forward_peak, row.forward_peak_bytes, backward_peak, row.backward_peak_bytes)
    assert retained <= row.retained_bytes <= 1.02 * retained
    assert forward_peak <= row.forward_peak_bytes <= 1.1 * forward_peak
    assert backward_peak <= row.backward_peak_bytes <= 1.05 * backward_peak


def measured(call: real_layers.Call, *, recompute: bool) -> tuple[int, int, int]:
    """Return what the layer retains, and its peaks forward and backward."""
    known = call.tensors()
    gradient = torch.ones_like(known[0])
    with LiveStorages([*known, gradient], call.layer.parameters()) as storages:
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
