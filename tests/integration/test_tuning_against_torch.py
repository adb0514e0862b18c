"""Frozen layers and low-rank adapters against real ones: saved bytes, peaks, parameters, optimizer.

The adapter is written here as PEFT writes its own: the frozen product, plus the scaled product of
two small ones over the input, which dropout may thin and which is cast to the adapter's type.
"""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real layers need torch")
pytest.importorskip("transformers", "5", reason="the real layers are those of transformers 5")

from tests.integration import tiny_models  # noqa: E402
from tests.integration.live_storages import LiveStorages  # noqa: E402
from torch import nn  # noqa: E402
from torch.autograd.graph import GradientEdge, saved_tensors_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack.parallelism import Parallelism  # noqa: E402
from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.architecture import Architecture, UnitKind  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.degrees import resolve  # noqa: E402
from haversack_server.memory.layers import layer_tape  # noqa: E402
from haversack_server.memory.states import architecture_units  # noqa: E402
from haversack_server.memory.tape import measure, saved_storages  # noqa: E402
from haversack_server.memory.tuning import Stored, Tuning, stored_bytes  # noqa: E402
from haversack_server.memory.weights import tuned  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PROFILE = replace(kernel_profile.load("hf-cpu"), dropout_mask_bytes=None)
RANK = 6
EVERYWHERE = frozenset({"query", "key", "value", "output", "gate", "up", "down"})
MODULES = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
TUNINGS = {
    "frozen": Tuning(),
    "queries and values": Tuning(targets=frozenset({"query", "value"}), rank=RANK),
    "everywhere": Tuning(targets=EVERYWHERE, rank=RANK),
    "everywhere, in fp32": Tuning(targets=EVERYWHERE, rank=RANK, adapter_bytes=4),
    "norms": Tuning(norms_train=True),
    "norms and outputs": Tuning(targets=frozenset({"output"}), rank=RANK, norms_train=True),
}


class Adapted(nn.Module):
    """A frozen product with a low-rank one beside it."""

    def __init__(self, base: nn.Linear, tuning: Tuning) -> None:
        super().__init__()
        dtype = torch.float32 if tuning.adapter_bytes == 4 else base.weight.dtype
        self.base = base
        self.lora_A = nn.Linear(base.in_features, tuning.rank, bias=False, dtype=dtype)
        self.lora_B = nn.Linear(tuning.rank, base.out_features, bias=False, dtype=dtype)
        self.scaling = 2.0

    def forward(self, x: Any) -> Any:
        result = self.base(x)
        wide = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(wide)) * self.scaling
        return result.to(x.dtype)


def in_type(tuning: Tuning, dtype: Any) -> Tuning:
    """Adapters are in the type of the weights, or in fp32."""
    return replace(tuning, adapter_bytes=max(tuning.adapter_bytes, dtype.itemsize))


def layer(name: str, attention: str, tuning: Tuning, dtype: Any) -> Any:
    """Return one real layer with its weights frozen and its adapters in place."""
    made = tiny_models.layer(name, attention, dtype)
    made.requires_grad_(False)
    if tuning.norms_train:
        for part, module in made.named_modules():
            if "norm" in part:
                module.requires_grad_(True)
    for role in tuning.targets:
        parent, _, child = MODULES[role].rpartition(".")
        owner = made.get_submodule(parent)
        setattr(owner, child, Adapted(getattr(owner, child), tuning))
    return made


def architecture(name: str, tuning: Tuning, dtype: Any) -> Architecture:
    return tuned(tiny_models.architecture(name), tuning, dtype.itemsize)


def arguments(name: str, attention: str, dtype: Any) -> tuple[Any, dict[str, Any]]:
    seq, model = tiny_models.SEQ, tiny_models.architecture(name)
    tables = tuple(torch.randn(1, seq, model.head_dim, dtype=dtype) for _ in range(2))
    mask = torch.zeros(2, 1, seq, seq, dtype=dtype) if attention == "eager" else None
    hidden = torch.randn(2, seq, 64, dtype=dtype, requires_grad=True)
    return hidden, {"attention_mask": mask, "position_embeddings": tables}


def shape(attention: str, dtype: Any) -> Shape:
    return Shape(
        microbatch=2,
        seq=tiny_models.SEQ,
        compute_bytes=dtype.itemsize,
        attention=AttentionKind(attention),
    )


CASES = [(name, attention) for name in ("llama", "qwen3") for attention in ("eager", "sdpa")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("tuning", TUNINGS.values(), ids=TUNINGS)
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_a_tuned_layer_saves_what_the_real_one_saves(
    name: str, attention: str, tuning: Tuning, dtype: Any
) -> None:
    tuning = in_type(tuning, dtype)
    real = layer(name, attention, tuning, dtype)
    hidden, given = arguments(name, attention, dtype)
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        real(hidden, **given)
    for tensor in (hidden, *given["position_embeddings"], *real.parameters()):
        storages.pop(tensor.untyped_storage()._cdata, None)
    tape = layer_tape(architecture(name, tuning, dtype), PROFILE, shape(attention, dtype))
    expected = sum(storage.nbytes() for storage in storages.values())
    assert tape.size_of(saved_storages(tape)) == expected


@pytest.mark.parametrize("recompute", [False, True], ids=["save", "recompute"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("tuning", TUNINGS.values(), ids=TUNINGS)
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_no_tuned_layer_peaks_above_its_tape(
    name: str, attention: str, tuning: Tuning, dtype: Any, recompute: bool
) -> None:
    tuning = in_type(tuning, dtype)
    real = layer(name, attention, tuning, dtype)
    hidden, given = arguments(name, attention, dtype)
    gradient = torch.ones_like(hidden)
    known = [hidden, gradient, *given["position_embeddings"]]
    known += [given["attention_mask"]] if attention == "eager" else []
    with LiveStorages(known, real.parameters()) as storages:
        output = (
            checkpoint(real, hidden, use_reentrant=False, **given)
            if recompute
            else real(hidden, **given)
        )
        last = output.mul(1)
        edge = GradientEdge(last.grad_fn, 0)
        del output, last
        storages.peak_bytes = storages.live_bytes
        torch.autograd.backward(edge, gradient)
    tape = layer_tape(architecture(name, tuning, dtype), PROFILE, shape(attention, dtype))
    row = measure(tape, save=not recompute)
    assert storages.peak_bytes <= row.backward_peak_bytes <= 1.1 * storages.peak_bytes


@pytest.mark.parametrize("tuning", TUNINGS.values(), ids=TUNINGS)
def test_parameters_and_optimizer_state_are_those_of_the_real_layer(tuning: Tuning) -> None:
    real = layer("llama", "sdpa", tuning, torch.bfloat16)
    training = [row for row in real.parameters() if row.requires_grad]
    frozen = [row for row in real.parameters() if not row.requires_grad]
    model = architecture("llama", tuning, torch.bfloat16)
    unit = next(row for row in model.units if row.kind is UnitKind.LAYER)
    (states,) = architecture_units([unit], resolve(Parallelism()))
    assert states.elements == sum(row.numel() for row in training)
    assert states.frozen_bytes == sum(row.nbytes for row in frozen)
    if not training:
        return
    optimizer = torch.optim.AdamW(training)
    for row in training:
        row.grad = torch.ones_like(row)
    optimizer.step()
    moments = sum(
        value.numel()
        for state in optimizer.state.values()
        for key, value in state.items()
        if key != "step"
    )
    assert moments == 2 * states.elements


@pytest.mark.parametrize("keeps", [False, True], ids=["later", "before 0.43.2"])
def test_a_quantized_weight_is_made_whole_for_its_products_which_may_keep_their_inputs(
    keeps: bool,
) -> None:
    plain = Tuning(targets=frozenset({"down"}), rank=RANK)
    quantized = replace(plain, stored=Stored.NF4, keeps_inputs=keeps)
    dtype = torch.bfloat16
    tapes = [
        layer_tape(architecture("llama", row, dtype), PROFILE, shape("sdpa", dtype))
        for row in (plain, quantized)
    ]
    kept = saved_storages(tapes[1]) - saved_storages(tapes[0])
    # Those of queries, keys and values, and of gate and up; the others are kept anyway.
    assert [name.split(" #")[0] for name in sorted(kept)] == (["norm", "norm"] if keeps else [])
    assert bool(measure(tapes[1], save=True).graph_bytes) == keeps
    weights = tiny_models.architecture("llama").units[1].parameters
    products = sum(2 * row.count for row in weights if len(row.shape) == 2)
    scratch = [sum(op.forward_scratch_bytes for op in tape.operations) for tape in tapes]
    assert scratch == [0, products]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (Stored.COMPUTE, 2 * 4096 * 11008),
        (Stored.INT8, 4096 * 11008 + 4 * 4096),
        # 4 bits, and 32 bits for 64 weights: 4.5 bits.
        (Stored.NF4, 4096 * 11008 * 9 // 16),
        # 4 bits, 8 for 64 weights, 32 for 256 of those: 4.127 bits (arXiv 2305.14314, section 3).
        (Stored.NF4_DOUBLE, 4096 * 11008 // 2 + 704512 + 4 * 2752 + 4),
    ],
)
def test_stored_bytes_are_those_of_the_papers_arithmetic(stored: Stored, expected: int) -> None:
    assert stored_bytes(stored, (4096, 11008), 2) == expected
