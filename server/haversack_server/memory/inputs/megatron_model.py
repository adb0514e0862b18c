"""The model that Megatron-LM arguments describe: a GPT, with experts and latent attention or not.

Defaults of arguments that are missing are Megatron's own. Knows nothing of weights, nor of training
settings.
"""

import re
from typing import Any

from haversack import checks
from haversack_server.memory.architecture import Activation, Architecture, Norm
from haversack_server.memory.inputs.megatron_vocabulary import BERT, T5, padded_vocabulary
from haversack_server.memory.inputs.megatron_weights import with_megatron_units
from haversack_server.memory.inputs.reader import Reader, whole_number
from haversack_server.memory.traits import (
    Head,
    Latent,
    Projection,
    QueryKeyNorm,
    Rotary,
    Router,
    Routing,
)

_NORMS = {"layernorm": Norm.LAYER, "rmsnorm": Norm.RMS}
_POSITIONS = {"learned_absolute": True, "rope": False, "mrope": False, "yarn": False, "none": False}
_ROUTERS = {"softmax": Router.SOFTMAX, "sigmoid": Router.FLOAT_SIGMOID}
_TERM = re.compile(r"\[(?P<list>[01](?:,[01])*)\](?:\*(?P<times>\d{1,5}))?")
MOST_LAYERS = 10_000
MOST_PREDICTORS = 64  # models have one to three
_RATE = 0.1  # Megatron's default of both dropouts

_OTHER_SCRIPTS = {
    "pretrain_mamba": "Mamba",
    "pretrain_hybrid": "a model with layers of several kinds",
    "pretrain_vlm": "a model of images and text",
    "pretrain_vision_classify": "a vision model",
    "pretrain_retro": "RETRO",
    "train_rl": "reinforcement learning",
}

# Parts of a model that its plain GPT does not have; each changes weights and activations.
_OTHER_MODELS = {
    "hybrid-layer-pattern": "layers of several kinds",
    "hybrid-override-pattern": "layers of several kinds",
    "is-hybrid-model": "layers of several kinds",
    "squared-relu": "squared ReLU",
    "quick-geglu": "a gated quick GELU",
    "openai-gelu": "the GELU written out in several kernels",
    "mtp-use-repeated-layer": "one layer that predicts several further tokens",
    "heterogeneous-layers-config-path": "layers that differ",
    "experimental-attention-variant": "another attention",
    "window-size": "a window of attention",
    "vision-pretraining": "a vision model",
}


def megatron_architecture(reader: Reader, tp: int, script: str = "") -> Architecture | None:
    """Read the model; None where the arguments describe none, or one that is not modelled.

    What the arguments leave open, the training ``script`` says: GPT, BERT or T5.
    """
    if reader.has("encoder-num-layers", "decoder-num-layers"):
        script = T5  # only T5 has the two
    if not reader.has("num-layers", "hidden-size", "encoder-num-layers", "hybrid-layer-pattern"):
        return None
    others = len(reader.sentences)
    reader.unmodelled_if_on(_OTHER_MODELS)
    if script in _OTHER_SCRIPTS:
        reader.unmodelled(f"{script}.py", f"{_OTHER_SCRIPTS[script]} under Megatron")
    is_plain = len(reader.sentences) == others
    sizes = _sizes(reader, tp, script) if is_plain else None
    return with_megatron_units(Architecture(**sizes)) if sizes else None


def _sizes(reader: Reader, tp: int, script: str) -> dict[str, Any] | None:
    hidden = reader.whole("hidden-size", least=1, most=2**24)
    layers = reader.whole("num-layers", least=1, most=MOST_LAYERS)
    if script in (BERT, T5):
        reader.unmodelled_if_on({"mtp-num-layers": "further tokens predicted by an encoder"})
    of_script = {BERT: _bert, T5: _t5}.get(script, _gpt)(reader, layers)
    layers = of_script.get("layers", layers)
    heads = reader.whole("num-attention-heads", least=1, most=2**16)
    biased = not reader.flag("disable-bias-linear")
    qkv_bias = bool(reader.flag("add-qkv-bias"))
    vocab = padded_vocabulary(reader, tp, script)
    shape = {**_flags(reader), **_rates(reader), **_experts(reader, layers or 1)}
    if hidden is None or layers is None or heads is None or vocab is None:
        for key, value in (("hidden-size", hidden), ("num-attention-heads", heads)):
            if value is None:
                reader.require(key)
        return None
    kv_heads = _kv_heads(reader, heads)
    return {
        "family": "megatron-gpt",
        "name": reader.source.name,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": _head_dim(reader, hidden, heads),
        "ffn": _ffn(reader, hidden, shape),
        "vocab": vocab,
        "projection": Projection.THIRDS if kv_heads == heads else Projection.HEADS,
        "latent": _latent(reader),
        "softmax_in_float": bool(reader.flag("attention-softmax-in-fp32")),
        "query_key_value_bias": biased or qkv_bias,
        "output_bias": biased,
        "ffn_bias": biased,
        **shape,
        **of_script,
    }


def _gpt(reader: Reader, layers: int | None) -> dict[str, Any]:
    """Read what a GPT may have beside its layers: some that predict further tokens."""
    return {"prediction_layers": reader.whole("mtp-num-layers", most=MOST_PREDICTORS) or 0}


def _t5(reader: Reader, layers: int | None) -> dict[str, Any]:
    """Read what T5 has beside a GPT's layers: an encoder, and a bias of its logits."""
    encoder, decoder = (
        reader.whole(f"{stack}-num-layers", least=1, most=MOST_LAYERS) or layers
        for stack in ("encoder", "decoder")
    )
    if encoder is None or decoder is None:
        reader.refuse("encoder-num-layers", "and decoder-num-layers are needed; give both")
    return {
        "family": "megatron-t5",
        "encoder_layers": encoder or 1,
        "layers": decoder or 1,
        "head_bias": True,
    }


def _bert(reader: Reader, layers: int | None) -> dict[str, Any]:
    """Read what BERT has beside a GPT's layers: segments, a head of its own, no causal mask."""
    pairs = not reader.flag("bert-no-binary-head")
    return {
        "family": "megatron-bert",
        "causal": False,
        "head": Head.MASKED,
        "head_bias": True,
        "segments": 2,
        "labels": 2 if pairs else 0,
    }


def _flags(reader: Reader) -> dict[str, Any]:
    learned = reader.word(_POSITIONS, "position-embedding-type")
    positions = reader.whole("max-position-embeddings", least=1, most=2**40)
    if positions is None and learned is not False:
        # Megatron-LM asserts it too (megatron/training/arguments.py, validate_args).
        reader.refuse(
            "max-position-embeddings",
            "is not given, and learned positions have a table of that length; give it, at least "
            "seq-length, or --position-embedding-type rope",
        )
    gated = bool(reader.flag("swiglu"))
    normed = reader.flag("qk-layernorm")
    return {
        "tied": not reader.flag("untie-embeddings-and-output-weights"),
        "norm": reader.word(_NORMS, "normalization") or Norm.LAYER,
        "learned_positions": learned is not False,
        "rotary": Rotary.HALVES if learned is False else Rotary.NONE,
        "max_positions": positions or 1,
        "gated": gated,
        "activation": Activation.SILU if gated else Activation.GELU,
        "query_key_norm": QueryKeyNorm.HEAD if normed else QueryKeyNorm.NONE,
    }


def _rates(reader: Reader) -> dict[str, float]:
    attention = reader.number("attention-dropout", most=1)
    hidden = reader.number("hidden-dropout", most=1)
    if attention is None or hidden is None:
        reader.assume(f"dropouts that are not given are {_RATE:g}, Megatron's default")
    hidden = _RATE if hidden is None else hidden
    return {
        "attention_dropout": _RATE if attention is None else attention,
        "residual_dropout": hidden,
        "embedding_dropout": hidden,
    }


def _experts(reader: Reader, layers: int) -> dict[str, Any]:
    experts = reader.whole("num-experts", least=1, most=2**16)
    per_token = reader.whole("moe-router-topk", least=1, most=2**16)
    shared = reader.whole("moe-shared-expert-intermediate-size", least=1, most=2**28)
    scores = reader.word(_ROUTERS, "moe-router-score-function") or Router.SOFTMAX
    grouped = bool(reader.flag("moe-grouped-gemm"))
    dense = _dense_layers(reader, layers)
    dense_ffn = reader.whole("ffn-hidden-size", least=1, most=2**28)
    if experts is None:
        return {}
    return {
        "experts": experts,
        "experts_per_token": per_token or 2,
        "dense_layers": dense,
        "dense_ffn": dense_ffn or 0 if dense else 0,
        "routing": Routing(router=scores, shared_ffn=shared or 0, grouped=grouped),
    }


def _dense_layers(reader: Reader, layers: int) -> tuple[int, ...]:
    """Read which layers have no experts: all but every n-th, or a list such as ([0]*3+[1]*11)."""
    given = reader.given("moe-layer-freq")
    if given is None:
        return ()
    every = whole_number(given.value)
    pattern = given.value if isinstance(given.value, list) else _pattern(str(given.value))
    if every is not None:
        pattern = [int(index % max(1, every) == 0) for index in range(layers)]
    if pattern is None or len(pattern) != layers or not set(pattern) <= {0, 1}:
        wanted = f"give a number, or a 0 or 1 for each of {layers} layers: ([0]*3+[1]*{layers - 3})"
        reader.refuse("moe-layer-freq", f"is {checks.shortly(given.value)}; {wanted}")
        return ()
    return tuple(index for index, has_experts in enumerate(pattern) if not has_experts)


def _pattern(written: str) -> list[int] | None:
    """Read a sum of lists, some of them repeated; nothing is evaluated."""
    made: list[int] = []
    for term in re.sub(r"[()\s]", "", written).split("+"):
        found = _TERM.fullmatch(term)
        if found is None or len(made) > MOST_LAYERS:
            return None
        made += [int(each) for each in found["list"].split(",")] * int(found["times"] or 1)
    return made


def _latent(reader: Reader) -> Latent | None:
    """Read multi-latent attention; Megatron's defaults are those of DeepSeek V3's heads."""
    names = ("q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim")
    query, key_value, plain, rotary, value = (
        reader.whole(name, least=1, most=2**20) for name in names
    )
    if not reader.flag("multi-latent-attention"):
        return None
    return Latent(
        query_rank=query,
        key_value_rank=key_value or 512,
        plain=plain or 128,
        rotary=rotary or 64,
        value=value or 128,
    )


def _kv_heads(reader: Reader, heads: int) -> int:
    grouped = reader.flag("group-query-attention")
    groups = reader.whole("num-query-groups", least=1, most=heads)
    if not grouped:
        return heads
    if groups is None or heads % groups:
        reader.refuse("num-query-groups", f"must be given and divide {heads} attention heads")
        return heads
    return groups


def _head_dim(reader: Reader, hidden: int, heads: int) -> int:
    given = reader.whole("kv-channels", least=1, most=2**16)
    if given is None and hidden % heads:
        reader.refuse("num-attention-heads", f"{heads} do not divide {hidden}, the hidden size")
    return given or max(1, hidden // heads)


def _ffn(reader: Reader, hidden: int, shape: dict[str, Any]) -> int:
    dense = reader.whole("ffn-hidden-size", least=1, most=2**28)
    expert = reader.whole("moe-ffn-hidden-size", least=1, most=2**28)
    if shape.get("experts") and expert is not None:
        return expert
    if dense is not None:
        return dense
    # Megatron keeps the parameters of two matrices of 4 h in three, in multiples of 64.
    return int(4 * hidden * 2 / 3) // 64 * 64 if shape["gated"] else 4 * hidden
