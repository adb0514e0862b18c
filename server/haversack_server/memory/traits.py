"""What distinguishes model families beyond sizes: kinds of norm, rotary positions, routers, heads.

Each value stands for one way that Hugging Face transformers 5.24 writes the part (read, and
measured with torch 2.13.0 on the CPU). Knows nothing of sizes, bytes or configuration files.
"""

from dataclasses import dataclass
from enum import StrEnum


class Norm(StrEnum):
    """How a model normalises; the variants of RMSNorm differ in what they keep in fp32."""

    LAYER = "layer"
    # No weight, computed on a copy in fp32 (OLMo).
    LAYER_PLAIN = "layer_plain"
    # LayerNorm written out in fp32, in Python (Cohere).
    LAYER_FLOAT = "layer_float"
    # weight * (x32 * root).to(dtype) (Llama).
    RMS = "rms"
    # (x32 * root * (1 + weight32)).to(dtype) (Gemma).
    RMS_FLOAT = "rms_float"
    # (weight * (x32 * root)).to(dtype) (OLMo 2, GPT-OSS).
    RMS_WIDE = "rms_wide"
    # weight * (x * root32).to(dtype) (T5).
    RMS_MIXED = "rms_mixed"


class Activation(StrEnum):
    """The feed-forward activation, under Hugging Face's names."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_pytorch_tanh"
    GELU_NEW = "gelu_new"
    # BLOOM's own function, which keeps its input alone.
    GELU_BLOOM = "gelu_bloom"
    RELU = "relu"


class Residual(StrEnum):
    """Where the norms of a layer stand, and how its two branches meet the residual stream."""

    # x + f(norm(x)), one branch after the other.
    SEQUENTIAL = "sequential"
    # x + attention(norm(x)) + ffn(norm(x)), with one norm for both.
    PARALLEL = "parallel"
    # The same with a norm for each branch.
    PARALLEL_NORMS = "parallel_norms"
    # norm(x + f(x)), as in BERT.
    AFTER = "after"
    # x + norm(f(x)), as in OLMo 2.
    OUTPUT = "output"


class Rotary(StrEnum):
    """How positions turn queries and keys."""

    NONE = "none"
    # Halves swapped and concatenated (Llama); the part beyond ``rotary_size`` is concatenated.
    HALVES = "halves"
    # The same, concatenated with a rest that may be empty (Phi, GPT-NeoX, StableLM).
    HALVES_AND_REST = "halves_and_rest"
    # Neighbours stacked (GPT-J).
    PAIRS = "pairs"
    # Neighbours stacked, on copies in fp32 (Cohere).
    PAIRS_FLOAT = "pairs_float"
    # As complex numbers in fp32 (DeepSeek V2, Llama 4).
    COMPLEX = "complex"
    # Every other element, four products (DeepSeek V3).
    STRIDED = "strided"


class Projection(StrEnum):
    """How queries, keys and values are projected; parts of one product are views of it."""

    SEPARATE = "separate"
    # One product, cut into three equal parts (GPT-2).
    THIRDS = "thirds"
    # One product, cut within each head or group of heads (GPT-NeoX, BLOOM).
    HEADS = "heads"
    # The same for groups of query heads, each with a key head that is copied to all of it (Falcon
    # 40B).
    GROUPS = "groups"
    # The same with one key head for all, taken by its index in a copy (Falcon 7B).
    INDEXED = "indexed"
    # One product, cut by columns (Phi-3).
    COLUMNS = "columns"


class QueryKeyNorm(StrEnum):
    """What of queries and keys is normalised."""

    NONE = "none"
    # Each head, with one weight for all (Qwen 3).
    HEAD = "head"
    # Each head, with a weight for each (Cohere).
    HEADS = "heads"
    # All heads together (OLMo 2).
    WIDTH = "width"
    # Each head, without a weight, after positions (Llama 4).
    PLAIN = "plain"


class Router(StrEnum):
    """How tokens are scored against experts."""

    # Softmax in fp32, then the highest, normalised or not (Mixtral, Qwen).
    SOFTMAX = "softmax"
    # The highest logits, then softmax over them (GPT-OSS).
    CHOSEN = "chosen"
    # Softmax on fp32 logits of fp32 inputs (DeepSeek V2).
    FLOAT_SOFTMAX = "float_softmax"
    # Sigmoid on fp32 logits of fp32 inputs, groups of experts (DeepSeek V3).
    FLOAT_SIGMOID = "float_sigmoid"
    # Every expert runs every token, scaled by a sigmoid that is 0 where it was not chosen (Llama
    # 4).
    DENSE = "dense"


class Head(StrEnum):
    """What follows the last layer."""

    # Final norm, logits of every token, cross-entropy of the next token.
    CAUSAL = "causal"
    # Dense, activation, norm, logits of every token (BERT).
    MASKED = "masked"
    # Final norm, logits of one token per sequence (ViT).
    CLASSIFIER = "classifier"
    # As CAUSAL, with the labels in place: the decoder's input is shifted instead (T5).
    SHIFTED = "shifted"


class Stack(StrEnum):
    """Which stack of layers a layer belongs to."""

    DECODER = "decoder"
    ENCODER = "encoder"
    # A decoder that attends to the output of an encoder too.
    CROSS = "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: the ranks of its compressions and the parts of a head.

    ``query_rank`` is None where queries are projected at once.
    """

    query_rank: int | None
    key_value_rank: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How a layer of experts chooses, and what runs beside the chosen.

    ``shared_ffn`` is the feed-forward size of the expert that every token visits, 0 for none;
    ``groups`` divide the experts of a FLOAT router, 0 for none. ``grouped`` asks a framework that
    has both for one grouped product in place of one product after another.
    """

    router: Router = Router.SOFTMAX
    normalised: bool = True
    # Whether the scores are cast to the compute dtype before they weigh the experts' rows.
    narrow_scores: bool = False
    shared_ffn: int = 0
    shared_gate: bool = False
    groups: int = 0
    chosen_groups: int = 0
    grouped: bool = False


PLAIN_ROUTING = Routing()  # of every model with experts that says nothing else
