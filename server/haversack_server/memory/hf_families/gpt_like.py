"""Families of GPT-2's line: LayerNorm with biases, a plain feed-forward, positions learned or
turned."""

from haversack_server.memory.hf_families import readers
from haversack_server.memory.hf_families.family import WINDOW, Family
from haversack_server.memory.hf_families.llama_like import llama_like
from haversack_server.memory.traits import Activation, Norm, Projection, Rotary

_ALL_BIASES = {"query_key_value_bias": True, "output_bias": True, "ffn_bias": True}
GPT2_SPELLINGS = {
    "hidden": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "heads": ("n_head", "num_attention_heads"),
    "kv_heads": (),
    "head_dim": (),
    "ffn": ("n_inner",),
    "max_positions": ("n_positions", "max_position_embeddings"),
    "activation": ("activation_function",),
    "attention_dropout": ("attn_pdrop",),
    "residual_dropout": ("resid_pdrop",),
    "embedding_dropout": ("embd_pdrop",),
}

GPT_LIKE = (
    Family(
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        defaults={
            "ffn": None,
            "tied": True,
            "activation": Activation.GELU_NEW,
            "max_positions": 1024,
            "attention_dropout": 0.1,
            "residual_dropout": 0.1,
            "embedding_dropout": 0.1,
        },
        spellings=GPT2_SPELLINGS,
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "projection": Projection.THIRDS,
            "learned_positions": True,
            "rotary": Rotary.NONE,
            "softmax_in_float": False,
            "branches_held": True,
        }
        | _ALL_BIASES,
    ),
    Family(
        model_type="opt",
        class_name="OPTForCausalLM",
        defaults={
            "tied": True,
            "activation": Activation.RELU,
            "max_positions": 2048,
            "attention_dropout": 0.0,
            "residual_dropout": 0.1,
        },
        spellings={
            "ffn": ("ffn_dim",),
            "kv_heads": (),
            "head_dim": (),
            "activation": ("activation_function",),
            "residual_dropout": ("dropout",),
        },
        only={
            "do_layer_norm_before": True,
            "layer_norm_elementwise_affine": True,
            "layerdrop": 0.0,
        },
        silent=frozenset({"activation_dropout"}),
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "learned_positions": True,
            "position_offset": 2,  # two rows before the first position, for padding
            "rotary": Rotary.NONE,
            "scaled_query": True,
        },
        readers=(readers.opt,),
    ),
    Family(
        model_type="bloom",
        class_name="BloomForCausalLM",
        defaults={
            "ffn": None,
            "tied": True,
            "activation": Activation.GELU_BLOOM,
            "max_positions": 2048,
            "attention_dropout": 0.0,
            "residual_dropout": 0.0,
        },
        spellings={
            "hidden": ("hidden_size", "n_embed"),
            "layers": ("n_layer", "num_hidden_layers"),
            "heads": ("n_head", "num_attention_heads"),
            "ffn": (),
            "kv_heads": (),
            "head_dim": (),
            "activation": (),
            "max_positions": (),
            "residual_dropout": ("hidden_dropout",),
        },
        only={"apply_residual_connection_post_layernorm": False, "slow_but_exact": False},
        silent=frozenset(
            {"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"}
            | {"offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"}
        ),
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "projection": Projection.HEADS,
            "rotary": Rotary.NONE,
            "alibi": True,
            "embedding_norm": True,
        }
        | _ALL_BIASES,
    ),
    llama_like(
        "starcoder2",
        "Starcoder2ForCausalLM",
        defaults={
            "kv_heads": 2,
            "tied": True,
            "activation": Activation.GELU_TANH,
            "residual_dropout": 0.0,
            "embedding_dropout": 0.0,
            "max_positions": 4096,
            "sliding_window": None,
        },
        spellings=WINDOW
        | {
            "residual_dropout": ("residual_dropout",),
            "embedding_dropout": ("embedding_dropout",),
        },
        silent=frozenset({"activation_function", "attention_softmax_in_fp32", "mlp_type"})
        | {"norm_type", "scale_attention_softmax_in_fp32"},
        traits={"norm": Norm.LAYER, "gated": False},
        readers=(readers.starcoder2,),
    ),
)
