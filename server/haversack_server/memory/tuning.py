"""Frozen weights and low-rank adapters: which parameters train, how the others are stored.

An adapted product keeps what its adapter needs: its input, for the first small product, and that
product's result, for the second; the frozen weight keeps nothing. A quantized weight is made into
the compute dtype for every product, forward and backward, and its kernel may keep the input in an
attribute of its context, which autograd does not free with the backward. Roles are ours for the
products of a layer ("query", "gate", ...); what transformers calls them is known in ``weights``.

Sources: PEFT, src/peft/tuners/lora/layer.py (read as documented: result + B(A(dropout(x))) *
scaling); QLoRA, arXiv 2305.14314, section 3: 4 bits and one constant in fp32 for 64 weights, or one
in 8 bits and one in fp32 for 256 of those; bitsandbytes' 8-bit weights have one fp32 scale for each
row.
"""

from dataclasses import dataclass
from enum import StrEnum

BLOCK = 64
BLOCKS_PER_GROUP = 256
FLOAT_BYTES = 4
FACTOR_BYTES = 2

# Tape names of products that a role stands for, where they are not the role itself.
_ROLES: dict[str, frozenset[str]] = {
    "attention output": frozenset({"output"}),
    "feed-forward in": frozenset({"up"}),
    "feed-forward out": frozenset({"down"}),
    "logits": frozenset({"head"}),
    "query, key, value": frozenset({"query", "key", "value"}),
    "gate and up": frozenset({"gate", "up"}),
}


class Stored(StrEnum):
    """How frozen weights of a layer's products are stored.

    NF4_WHOLE_FACTORS is NF4_DOUBLE in which the factors of groups are a view of those of all
    blocks, in 16 bits: torchao before they were copied (dtypes/nf4tensor.py,
    ``double_quantize_scalers``, ``quantization_factor[:, 0]``).
    """

    COMPUTE = "compute"
    NF4 = "nf4"
    NF4_DOUBLE = "nf4_double"
    NF4_WHOLE_FACTORS = "nf4_whole_factors"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What trains: adapters of ``rank`` on the products of ``targets``, or only named parts.

    ``rank`` is 0 without adapters. ``adapter_bytes`` is the width of a number in an adapter and in
    what it computes. ``head_quantized``: the head's weight is stored as the layers' products are.
    ``embedding_trains``, ``head_trains`` and ``norms_train`` name parts that train as a whole.
    Products of weights in 4 bits keep their input if ``keeps_inputs``; each weight is made whole in
    so many ``dequantized_copies`` at once.
    """

    targets: frozenset[str] = frozenset()
    rank: int = 0
    dropout: float = 0.0
    adapter_bytes: int = 2
    stored: Stored = Stored.COMPUTE
    head_quantized: bool = False
    embedding_trains: bool = False
    head_trains: bool = False
    norms_train: bool = False
    keeps_inputs: bool = False
    dequantized_copies: int = 1

    def adapts(self, product: str) -> bool:
        """Whether the product of that name on a tape has an adapter."""
        return bool(self.rank and self.targets & _ROLES.get(product, frozenset({product})))

    def trains(self, product: str) -> bool:
        """Whether the whole weight of the product of that name trains."""
        return product == "logits" and self.head_trains

    def dequantized_bytes(self, product: str, elements: int, itemsize: int) -> int:
        """Bytes of the weight in the compute dtype that a product makes of a quantized one."""
        if not self._quantizes(product):
            return 0
        return elements * itemsize * self.dequantized_copies

    def keeps_input(self, product: str) -> bool:
        """Whether a quantized product names its input until the graph is dropped."""
        return self._quantizes(product) and (self.keeps_inputs or self.stored is Stored.INT8)

    def _quantizes(self, product: str) -> bool:
        whole = product == "logits" and not self.head_quantized
        return self.stored is not Stored.COMPUTE and not whole


def stored_bytes(stored: Stored, shape: tuple[int, ...], compute_bytes: int) -> int:
    """Bytes of a frozen weight with its constants."""
    elements = 1
    for size in shape:
        elements *= size
    if stored is Stored.COMPUTE:
        return elements * compute_bytes
    if stored is Stored.INT8:
        return elements + shape[0] * FLOAT_BYTES
    blocks = -(-elements // BLOCK)
    packed = -(-elements // 2)
    if stored is Stored.NF4:
        return packed + blocks * FLOAT_BYTES
    if stored is Stored.NF4_WHOLE_FACTORS:
        return packed + blocks + blocks * FACTOR_BYTES
    groups = -(-blocks // BLOCKS_PER_GROUP)
    return packed + blocks + groups * FLOAT_BYTES + FLOAT_BYTES
