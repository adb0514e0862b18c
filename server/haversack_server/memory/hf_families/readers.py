"""Traits that only some families' keys state, read one by one: each function is given what was read
before, and returns more of an Architecture's fields.
"""

from typing import TYPE_CHECKING, Any

from haversack_server.memory.traits import (
    Activation,
    Latent,
    Projection,
    QueryKeyNorm,
    Residual,
    Rotary,
    Router,
    Routing,
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


def latent(query_rank: int | None) -> "Traits":
    """Make a reader of latent attention's ranks, whose heads have two parts."""

    def read(reader: "Reader", sizes: Sizes) -> Sizes:
        made = Latent(
            query_rank=reader.integer("q_lora_rank", query_rank),
            key_value_rank=reader.integer("kv_lora_rank", 512) or 1,
            plain=reader.integer("qk_nope_head_dim", 128) or 1,
            rotary=reader.integer("qk_rope_head_dim", 64) or 1,
            value=reader.integer("v_head_dim", 128) or 1,
        )
        return {"latent": made, "rotary_size": made.rotary, "head_dim": made.plain + made.rotary}

    return read


def deepseek_v2(reader: "Reader", sizes: Sizes) -> Sizes:
    """Experts after the first dense layers; shared experts are one of their summed size."""
    method = reader.text("topk_method", "greedy", ("greedy", "group_limited_greedy"))
    reader.read.update(("norm_topk_prob", "n_group", "topk_group", "ep_size"))
    grouped = method == "group_limited_greedy"
    return {
        **_deepseek(reader, sizes, experts=64, per_token=None, size=1407, dense=0),
        "routing": Routing(
            router=Router.FLOAT_SOFTMAX,
            normalised=False,
            shared_ffn=_shared(reader, 1407, 2),
            groups=(reader.integer("n_group", None) or 1) if grouped else 0,
            chosen_groups=(reader.integer("topk_group", None) or 1) if grouped else 0,
        ),
    }


def deepseek_v3(reader: "Reader", sizes: Sizes) -> Sizes:
    """As DeepSeek V2, with scores by sigmoid; multi-token prediction has no layers here."""
    reader.read.update(("num_nextn_predict_layers", "num_mtp_layers", "topk_method", "ep_size"))
    if reader.values.get("num_nextn_predict_layers"):
        reader.assumptions.append(
            "num_nextn_predict_layers: the layers of multi-token prediction are not counted, as "
            "transformers' own class leaves them out"
        )
    return {
        **_deepseek(reader, sizes, experts=256, per_token=8, size=2048, dense=3),
        "rotary": Rotary.STRIDED if reader.switch("rope_interleave", True) else Rotary.HALVES,
        "routing": Routing(
            router=Router.FLOAT_SIGMOID,
            normalised=reader.switch("norm_topk_prob", True),
            shared_ffn=_shared(reader, 2048, 1),
            groups=reader.integer("n_group", 8) or 1,
            chosen_groups=reader.integer("topk_group", 4) or 1,
        ),
    }


def _deepseek(
    reader: "Reader", sizes: Sizes, *, experts: int, per_token: int | None, size: int, dense: int
) -> Sizes:
    reader.read.add("moe_layer_freq")
    if reader.values.get("moe_layer_freq", 1) != 1:
        reader.refuse("moe_layer_freq", "is not 1, which is not modelled; only 1 is")
    first = reader.integer("first_k_dense_replace", dense, least=0) or 0
    chosen = reader.integer("num_experts_per_tok", per_token)
    if chosen is None and not reader.violations:
        reader.refuse("num_experts_per_tok", "is missing; give an integer")
    made = {
        "experts": reader.integer("n_routed_experts", experts) or 1,
        "experts_per_token": chosen or 1,
    }
    return {
        **_checked(reader, "num_experts_per_tok", made),
        "ffn": reader.integer("moe_intermediate_size", size) or 1,
        "dense_ffn": sizes["ffn"],
        "dense_layers": tuple(range(min(first, sizes["layers"]))),
    }


def _shared(reader: "Reader", size: int, count: int) -> int:
    each = reader.integer("moe_intermediate_size", size) or 1
    return each * (reader.integer("n_shared_experts", count, least=0) or 0)


def _checked(reader: "Reader", key: str, made: Sizes) -> Sizes:
    experts, per_token = made["experts"], made["experts_per_token"]
    if per_token > experts and not reader.violations:
        reader.refuse(
            key, f"is {per_token}; at most {experts}, the number of experts, will do"
        )
    return made


def routed(*, router: Router = Router.SOFTMAX, narrow: bool = False, normalised: bool) -> "Traits":
    """Make a reader of how experts are chosen, where a key says whether scores are normalised."""

    def read(reader: "Reader", sizes: Sizes) -> Sizes:
        kept = reader.switch("norm_topk_prob", normalised)
        return {"routing": Routing(router=router, normalised=kept, narrow_scores=narrow)}

    return read


def qwen_experts(size: int, shared: int) -> "Traits":
    """Make a reader of Qwen's layers with experts: every n-th, but for those named as dense."""

    def read(reader: "Reader", sizes: Sizes) -> Sizes:
        step = reader.integer("decoder_sparse_step", 1) or 1
        named = reader.indices("mlp_only_layers") or ()
        shared_ffn = reader.integer("shared_expert_intermediate_size", shared) if shared else 0
        routing = Routing(
            normalised=reader.switch("norm_topk_prob", False),
            narrow_scores=True,
            shared_ffn=shared_ffn or 0,
            shared_gate=bool(shared),
        )
        dense = [row for row in range(sizes["layers"]) if row in named or (row + 1) % step]
        return {
            "routing": routing,
            "ffn": reader.integer("moe_intermediate_size", size) or 1,
            "dense_ffn": sizes["ffn"],
            "dense_layers": tuple(dense),
        }

    return read


def llama4(reader: "Reader", sizes: Sizes) -> Sizes:
    """Every n-th layer has experts, that all tokens visit; the others are dense."""
    step = reader.integer("interleave_moe_layer_step", 1) or 1
    layers = reader.indices("moe_layers")
    chosen = range(step - 1, sizes["layers"], step) if layers is None else layers
    normed = reader.switch("use_qk_norm", True)
    return {
        "query_key_norm": QueryKeyNorm.PLAIN if normed else QueryKeyNorm.NONE,
        "routing": Routing(router=Router.DENSE, shared_ffn=sizes["ffn"]),
        "dense_ffn": reader.integer("intermediate_size_mlp", 16384) or 1,
        "dense_layers": tuple(row for row in range(sizes["layers"]) if row not in chosen),
        **without_rotary(reader, sizes),
    }


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

