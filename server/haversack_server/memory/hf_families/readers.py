"""Traits that only some families' keys state, read one by one: each function is given what was read
before, and returns more of an Architecture's fields.
"""

from typing import TYPE_CHECKING, Any

from haversack_server.memory.traits import (
    Activation,
    Projection,
    QueryKeyNorm,
    Residual,
)

if TYPE_CHECKING:
    from haversack_server.memory.hf_families.family import Traits
    from haversack_server.memory.hf_reader import Reader

Sizes = dict[str, Any]


def partial_rotary(default: float, *keys: str) -> "Traits":
    """Make a reader of the share of each head that positions turn."""

    def read(reader: "Reader", sizes: Sizes) -> Sizes:
        share = reader.fraction(keys or ("partial_rotary_factor",), default)
        return {"rotary_size": int(sizes["head_dim"] * share)}

    return read


def rotary_dim(reader: "Reader", sizes: Sizes) -> Sizes:
    """GPT-J counts the elements of a head that positions turn; null is all of them."""
    return {"rotary_size": reader.integer("rotary_dim", 64) or sizes["head_dim"]}


def gpt_neox(reader: "Reader", sizes: Sizes) -> Sizes:
    """Branches side by side, or one after the other."""
    parallel = reader.switch("use_parallel_residual", True)
    return {"residual": Residual.PARALLEL_NORMS if parallel else Residual.SEQUENTIAL}


def stablelm(reader: "Reader", sizes: Sizes) -> Sizes:
    """As GPT-NeoX, with one norm for both branches; biases of queries, keys and values alone."""
    parallel = reader.switch("use_parallel_residual", False)
    return {
        "residual": Residual.PARALLEL if parallel else Residual.SEQUENTIAL,
        "query_key_value_bias": reader.switch("use_qkv_bias", False),
    }


def opt(reader: "Reader", sizes: Sizes) -> Sizes:
    """One switch for the biases of all products; embeddings as wide as the stream alone."""
    width = reader.integer("word_embed_proj_dim", None)
    if width not in (None, sizes["hidden"]):
        reader.refuse(
            "word_embed_proj_dim", f"is {width}; only {sizes['hidden']}, the hidden size, will do"
        )
    bias = reader.switch("enable_bias", True)
    kept = not reader.switch("_remove_final_layer_norm", False)
    return {
        "query_key_value_bias": bias,
        "output_bias": bias,
        "ffn_bias": bias,
        "final_norm": kept,
    }


def starcoder2(reader: "Reader", sizes: Sizes) -> Sizes:
    """One switch for the biases of all products."""
    bias = reader.switch("use_bias", True)
    return {"query_key_value_bias": bias, "output_bias": bias, "ffn_bias": bias}


def cohere(reader: "Reader", sizes: Sizes) -> Sizes:
    """Queries and keys may be normalised, each head with a weight of its own."""
    normed = reader.switch("use_qk_norm", False)
    return {"query_key_norm": QueryKeyNorm.HEADS if normed else QueryKeyNorm.NONE}


def phi(reader: "Reader", sizes: Sizes) -> Sizes:
    """Queries and keys may be normalised, with one weight for all heads."""
    normed = reader.switch("qk_layernorm", False)
    return {"query_key_norm": QueryKeyNorm.HEAD if normed else QueryKeyNorm.NONE}


def falcon(reader: "Reader", sizes: Sizes) -> Sizes:
    """Three generations of one family: 7B, 40B, and RefinedWeb's, told apart by switches."""
    newer = reader.switch("new_decoder_architecture", False)
    one_key = reader.switch("multi_query", True)
    parallel = reader.switch("parallel_attn", True)
    given = reader.integer("num_kv_heads", None)
    norms = reader.integer("num_ln_in_parallel_attn", None)
    bias = reader.switch("bias", False)
    kv_heads = (given or sizes["heads"]) if newer or not one_key else 1
    if not newer and not one_key:
        kv_heads = sizes["heads"]
    joined = Projection.GROUPS if newer else (Projection.INDEXED if one_key else Projection.HEADS)
    return {
        "kv_heads": kv_heads,
        "projection": joined,
        "residual": _falcon_residual(newer, parallel, norms),
        "query_key_value_bias": bias,
        "output_bias": bias,
        "ffn_bias": bias,
    }


def _falcon_residual(newer: bool, parallel: bool, norms: int | None) -> Residual:
    if not parallel:
        return Residual.SEQUENTIAL
    two = norms == 2 or (norms is None and newer)
    return Residual.PARALLEL_NORMS if two else Residual.PARALLEL


def without_rotary(reader: "Reader", sizes: Sizes) -> Sizes:
    """Every n-th layer turns no queries and keys; a list has a 0 for each of those."""
    step = reader.integer("no_rope_layer_interval", 4) or 4
    given = reader.indices("no_rope_layers")
    layers = range(sizes["layers"])
    if given:
        return {"plain_layers": tuple(row for row in layers if row < len(given) and not given[row])}
    return {"plain_layers": tuple(row for row in layers if (row + 1) % step == 0)}


def bert(reader: "Reader", sizes: Sizes) -> Sizes:
    """Embeddings of segments beside those of tokens and positions."""
    return {"segments": reader.integer("type_vocab_size", 2) or 1}


def vit(reader: "Reader", sizes: Sizes) -> Sizes:
    """Square images in square patches; the number of labels is that of their names."""
    bias = reader.switch("qkv_bias", True)
    image, patch = reader.integer("image_size", 224) or 1, reader.integer("patch_size", 16) or 1
    if image < patch and not reader.violations:
        reader.refuse("patch_size", f"is {patch}; at most {image}, the image size, will do")
        patch = image
    return {
        "image_size": image,
        "patch_size": patch,
        "channels": reader.integer("num_channels", 3) or 1,
        "query_key_value_bias": bias,
        "labels": _labels(reader),
        "max_positions": (image // patch) ** 2 + 1,
    }


def _labels(reader: "Reader") -> int:
    reader.read.update(("num_labels", "id2label"))
    names = reader.values.get("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return reader.integer("num_labels", 2) or 1


def t5(reader: "Reader", sizes: Sizes) -> Sizes:
    """Two stacks; the feed-forward activation says whether it is gated. All embeddings are tied."""
    given = reader.text("feed_forward_proj", "relu", ("relu", "gelu", "gated-gelu", "gated-silu"))
    gated, name = given.startswith("gated-"), given.rsplit("-", 1)[-1]
    activations = {
        "relu": Activation.RELU,
        "gelu": Activation.GELU_NEW if gated else Activation.GELU,
        "silu": Activation.SILU,
    }
    decoder = reader.integer("num_decoder_layers", None)
    dropout = sizes["residual_dropout"]
    scaled = reader.values.get("tie_word_embeddings") is not False
    reader.read.update(("tie_word_embeddings", "relative_attention_max_distance", "d_kv"))
    return {
        "gated": gated,
        "activation": activations[name],
        "encoder_layers": sizes["layers"],
        "layers": decoder or sizes["layers"],
        "relative_buckets": reader.integer("relative_attention_num_buckets", 32) or 1,
        "attention_dropout": dropout,
        "embedding_dropout": dropout,
        "ffn_dropout": dropout,
        "scaled_logits": scaled,
    }
