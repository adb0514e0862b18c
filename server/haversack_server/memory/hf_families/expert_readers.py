"""Traits of families with experts or latent attention, read from keys of their own.

Each function is given what was read before, and returns more of an Architecture's fields.
"""

from typing import TYPE_CHECKING, Any

from haversack_server.memory.hf_families.readers import without_rotary
from haversack_server.memory.traits import Latent, QueryKeyNorm, Rotary, Router, Routing

if TYPE_CHECKING:
    from haversack_server.memory.hf_families.family import Traits
    from haversack_server.memory.hf_reader import Reader

Sizes = dict[str, Any]


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
        reader.refuse(key, f"is {per_token}; at most {experts}, the number of experts, will do")
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
