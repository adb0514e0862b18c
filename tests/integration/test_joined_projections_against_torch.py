"""Queries, keys and values of one product, with adapters on parts of it, against real operations.

The attention is written here as litgpt's is: one product, groups expanded to all heads, one pair of
adapters for the enabled parts, whose results are copied among zeros.
"""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the real layers need torch")
pytest.importorskip("transformers", "5", reason="the real layers are those of transformers 5")

from tests.integration import tiny_models  # noqa: E402
from torch import nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402
from torch.nn import functional  # noqa: E402

from haversack_server.memory import kernel_profile  # noqa: E402
from haversack_server.memory.attention import AttentionKind  # noqa: E402
from haversack_server.memory.blocks import Shape  # noqa: E402
from haversack_server.memory.layers import layer_tape  # noqa: E402
from haversack_server.memory.tape import saved_storages  # noqa: E402
from haversack_server.memory.tuning import Tuning  # noqa: E402
from haversack_server.memory.weights import tuned  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PROFILE = replace(kernel_profile.load("hf-cpu"), dropout_mask_bytes=None, joins_projections=True)
RANK, BATCH, HIDDEN = 6, 2, 64
PARTS = ("query", "key", "value")


def turned(source: Any, tables: tuple[Any, Any]) -> Any:
    """Turn queries or keys of shape (batch, heads, seq, size) by their positions."""
    first, second = source.chunk(2, dim=-1)
    return source * tables[0] + torch.cat((-second, first), dim=-1) * tables[1]


class Joined(nn.Module):
    """Attention of one frozen product; adapters on ``targets`` of its parts."""

    def __init__(self, real: Any, targets: tuple[str, ...], dtype: Any) -> None:
        super().__init__()
        self.out, self.size = real.o_proj, real.head_dim
        sizes = {
            "query": real.q_proj.out_features,
            "key": real.k_proj.out_features,
            "value": real.v_proj.out_features,
        }
        self.heads = sizes["query"] // self.size
        self.groups = sizes["key"] // self.size
        self.total = sum(sizes.values())
        self.enabled = [sizes[name] for name in PARTS if name in targets]
        self.product = nn.Linear(HIDDEN, self.total, bias=False, dtype=dtype)
        self.product.weight.requires_grad_(False)
        few = len(self.enabled)
        self.first = nn.Parameter(torch.randn(RANK * few, HIDDEN, dtype=dtype))
        self.second = nn.Parameter(torch.randn(sum(self.enabled), RANK, dtype=dtype))

    def adapted(self, source: Any) -> Any:
        """Give the adapters' share of the product, zero where a part has none."""
        low = functional.linear(source, self.first).transpose(-2, -1)
        weights = torch.split(self.second, self.enabled)
        pieces = zip(low.chunk(len(self.enabled), dim=1), weights, strict=True)
        made = torch.cat([functional.conv1d(a, b.unsqueeze(-1)) for a, b in pieces], dim=1)
        made = made.transpose(-2, -1)
        if len(self.enabled) < len(PARTS):
            rows = made.reshape(-1, sum(self.enabled))
            places = torch.arange(sum(self.enabled))
            zeros = rows.new_zeros(rows.shape[0], self.total)
            made = zeros.index_copy(1, places, rows).view(*source.shape[:-1], self.total)
        return made * 2.0

    def forward(self, hidden_states: Any, position_embeddings: Any, **_: Any) -> tuple[Any, None]:
        batch, seq, _ = hidden_states.shape
        joined = self.product(hidden_states) + self.adapted(hidden_states)
        each = self.heads // self.groups
        parts = joined.view(batch, seq, self.groups, each + 2, self.size).permute(0, 2, 3, 1, 4)
        query, key, value = parts.split((each, 1, 1), dim=2)
        wide = (batch, self.groups, each, seq, self.size)
        query, key, value = (
            part.expand(wide).reshape(batch, -1, seq, self.size) for part in (query, key, value)
        )
        tables = tuple(table.unsqueeze(1) for table in position_embeddings)
        query, key = turned(query, tables), turned(key, tables)
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(made.transpose(1, 2).reshape(batch, seq, -1)), None


@pytest.mark.parametrize("targets", [("query", "value"), PARTS], ids=["some parts", "all parts"])
@pytest.mark.parametrize("name", ["llama", "llama, as many key heads"])
def test_a_joined_product_keeps_what_the_real_one_keeps(
    name: str, targets: tuple[str, ...]
) -> None:
    dtype, tuning = torch.bfloat16, Tuning(targets=frozenset(targets), rank=RANK)
    real = tiny_models.layer(name, "sdpa", dtype)
    real.requires_grad_(False)
    real.self_attn = Joined(real.self_attn, targets, dtype)
    model = tiny_models.architecture(name)
    seq = tiny_models.SEQ
    tables = tuple(torch.randn(1, seq, model.head_dim, dtype=dtype) for _ in range(2))
    hidden = torch.randn(BATCH, seq, HIDDEN, dtype=dtype, requires_grad=True)
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        real(hidden, attention_mask=None, position_embeddings=tables)
    for tensor in (hidden, *tables, *real.parameters()):
        storages.pop(tensor.untyped_storage()._cdata, None)
    shape = Shape(microbatch=BATCH, seq=seq, compute_bytes=2, attention=AttentionKind.SDPA)
    tape = layer_tape(tuned(model, tuning, 2), PROFILE, shape)
    expected = sum(storage.nbytes() for storage in storages.values())
    assert tape.size_of(saved_storages(tape)) == expected
