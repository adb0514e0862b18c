"""Families whose attention and feed-forward part run side by side on one residual stream."""

from haversack_server.memory.hf_families import readers
from haversack_server.memory.hf_families.family import ATTENTION_BIAS, Family
from haversack_server.memory.hf_families.gpt_like import GPT2_SPELLINGS
from haversack_server.memory.hf_families.llama_like import llama_like
from haversack_server.memory.traits import Activation, Norm, Projection, Residual, Rotary

PARALLEL = (
    Family(
        model_type="gpt_neox",
        class_name="GPTNeoXForCausalLM",
        defaults={
            "tied": False,
            "activation": Activation.GELU,
            "attention_bias": True,
            "attention_dropout": 0.0,
            "residual_dropout": 0.0,
            "max_positions": 2048,
        },
        spellings=ATTENTION_BIAS
        | {"kv_heads": (), "head_dim": (), "residual_dropout": ("hidden_dropout",)},
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "ffn_bias": True,
            "projection": Projection.HEADS,
            "rotary": Rotary.HALVES_AND_REST,
        },
        readers=(
            readers.partial_rotary(0.25, "rotary_pct", "partial_rotary_factor"),
            readers.gpt_neox,
        ),
    ),
    Family(
        model_type="gptj",
        class_name="GPTJForCausalLM",
        defaults={
            "ffn": None,
            "tied": False,
            "activation": Activation.GELU_NEW,
            "max_positions": 2048,
            "attention_dropout": 0.0,
            "residual_dropout": 0.0,
            "embedding_dropout": 0.0,
        },
        spellings=GPT2_SPELLINGS,
        silent=frozenset({"gradient_checkpointing", "rotary", "scale_attn_weights"}),
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "ffn_bias": True,
            "head_bias": True,
            "rotary": Rotary.PAIRS,
            "parts_held": True,
            "scores_in_float": True,
            "residual": Residual.PARALLEL,
        },
        readers=(readers.rotary_dim,),
    ),
    Family(
        model_type="falcon",
        class_name="FalconForCausalLM",
        defaults={
            "ffn": None,
            "tied": True,
            "activation": Activation.GELU,
            "max_positions": 2048,
            "attention_dropout": 0.0,
            "residual_dropout": 0.0,
        },
        spellings={
            "hidden": ("hidden_size", "n_embed"),
            "layers": ("num_hidden_layers", "n_layer"),
            "heads": ("num_attention_heads", "n_head"),
            "kv_heads": (),
            "head_dim": (),
            "ffn": ("ffn_hidden_size",),
            "activation": ("activation",),
            "residual_dropout": ("hidden_dropout",),
        },
        only={"alibi": False},
        silent=frozenset({"apply_residual_connection_post_layernorm"}),
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "softmax_in_float": False,
            "always_masked": True,
            "branches_held": True,
            "norms_held": True,
        },
        readers=(readers.falcon,),
    ),
    llama_like(
        "phi",
        "PhiForCausalLM",
        defaults={
            "activation": Activation.GELU_NEW,
            "residual_dropout": 0.0,
            "embedding_dropout": 0.0,
        },
        spellings={
            "residual_dropout": ("resid_pdrop",),
            "embedding_dropout": ("embd_pdrop",),
            "head_dim": (),
        },
        traits={
            "norm": Norm.LAYER,
            "gated": False,
            "query_key_value_bias": True,
            "output_bias": True,
            "ffn_bias": True,
            "head_bias": True,
            "residual": Residual.PARALLEL,
            "rotary": Rotary.HALVES_AND_REST,
            "parts_held": True,
        },
        readers=(readers.partial_rotary(0.5), readers.phi),
    ),
    llama_like(
        "cohere",
        "CohereForCausalLM",
        defaults={"tied": True, "attention_bias": False, "max_positions": 8192},
        spellings=ATTENTION_BIAS | {"head_dim": ()},
        silent=frozenset({"logit_scale"}),
        traits={
            "norm": Norm.LAYER_FLOAT,
            "rotary": Rotary.PAIRS_FLOAT,
            "residual": Residual.PARALLEL,
            "scaled_logits": True,
        },
        readers=(readers.cohere,),
    ),
)
