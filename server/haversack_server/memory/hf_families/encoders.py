"""Families with an encoder: BERT and RoBERTa, ViT, and T5 with its decoder."""

from haversack_server.memory.hf_families import readers
from haversack_server.memory.hf_families.family import Family
from haversack_server.memory.traits import Activation, Head, Norm, Residual, Rotary, Stack

_NO_KEY_HEADS: dict[str, tuple[str, ...]] = {"kv_heads": (), "head_dim": ()}
_BERT_DEFAULTS = {
    "tied": True,
    "activation": Activation.GELU,
    "max_positions": 512,
    "attention_dropout": 0.1,
    "residual_dropout": 0.1,
}
_BERT_SPELLINGS = _NO_KEY_HEADS | {
    "attention_dropout": ("attention_probs_dropout_prob",),
    "residual_dropout": ("hidden_dropout_prob",),
}
_ENCODER = {
    "norm": Norm.LAYER,
    "gated": False,
    "rotary": Rotary.NONE,
    "causal": False,
    "softmax_in_float": False,
    "query_key_value_bias": True,
    "output_bias": True,
    "ffn_bias": True,
    "head_bias": True,
}
_BERT_TRAITS = _ENCODER | {
    "learned_positions": True,
    "embedding_norm": True,
    "residual": Residual.AFTER,
    "head": Head.MASKED,
}

ENCODERS = (
    Family(
        model_type="bert",
        class_name="BertForMaskedLM",
        defaults=_BERT_DEFAULTS,
        spellings=_BERT_SPELLINGS,
        silent=frozenset({"gradient_checkpointing"}),
        traits=_BERT_TRAITS,
        readers=(readers.bert,),
        unsaid=("bert is trained as a masked language model, without a pooler",),
    ),
    Family(
        model_type="roberta",
        class_name="RobertaForMaskedLM",
        defaults=_BERT_DEFAULTS,
        spellings=_BERT_SPELLINGS,
        traits=_BERT_TRAITS,
        readers=(readers.bert,),
        unsaid=("roberta is trained as a masked language model, without a pooler",),
    ),
    Family(
        model_type="vit",
        class_name="ViTForImageClassification",
        defaults={
            "tied": False,
            "activation": Activation.GELU,
            "vocab": 1,
            "max_positions": 1,
            "attention_dropout": 0.0,
            "residual_dropout": 0.0,
        },
        spellings=_BERT_SPELLINGS | {"tied": (), "vocab": (), "max_positions": ()},
        silent=frozenset({"encoder_stride", "pooler_act", "pooler_output_size"}),
        traits=_ENCODER | {"head": Head.CLASSIFIER, "softmax_in_float": True},
        readers=(readers.vit,),
        unsaid=("vit is trained as a classifier of images, without a pooler",),
    ),
    Family(
        model_type="t5",
        class_name="T5ForConditionalGeneration",
        defaults={
            "tied": True,
            "activation": Activation.RELU,
            "head_dim": 64,
            "max_positions": 512,
            "residual_dropout": 0.1,
        },
        spellings={
            "hidden": ("d_model", "hidden_size"),
            "layers": ("num_layers", "num_hidden_layers"),
            "heads": ("num_heads", "num_attention_heads"),
            "kv_heads": (),
            "head_dim": ("d_kv",),
            "ffn": ("d_ff",),
            "tied": (),
            "activation": (),
            "max_positions": (),
            "residual_dropout": ("dropout_rate",),
        },
        only={"is_encoder_decoder": True},
        silent=frozenset({"dense_act_fn", "is_gated_act", "n_positions", "output_past"}),
        traits={
            "norm": Norm.RMS_MIXED,
            "rotary": Rotary.NONE,
            "head": Head.SHIFTED,
            "stack": Stack.CROSS,
            "position_bias": True,
            "undropped_held": True,
            "softmax_in_float": False,
        },
        readers=(readers.t5,),
        unsaid=("t5 ties the embeddings of encoder, decoder and head; transformers 5 always does",),
    ),
)
