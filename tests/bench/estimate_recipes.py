"""Recipes behind the finetuning tables of litgpt and torchtune: models, adapters, batches, lengths.

Models are described by their public sizes. litgpt: adapters and samples of a step stand in
``config_hub/finetune/MODEL/{lora,qlora}.yaml``, those of its resource tables are the defaults of
``litgpt/finetune/lora.py`` and the "minibatch size of 128" that the page states; it ties no weights
and quantizes every ``nn.Linear``, the head too. torchtune: ``recipes/configs``; its pages on
Llama 2 use ``alpaca_cleaned_dataset``, which cuts samples at 512 tokens
(``torchtune/datasets/_alpaca.py``), and quantize the products that have adapters.
Knows no rows and no gates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haversack.finetuning import Quantizer, StoredWeights
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Attention, Loss, Recompute

QUERY_VALUE = ("query", "value")
EVERYWHERE = ("query", "key", "value", "output", "gate", "up", "down", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A model with its adapters, the length that sets the peak, and the samples of a step.

    ``alone``: no other sample is nearly as long, so no full microbatch went before the highest.
    """

    config: Mapping[str, Any]
    rank: int
    targets: tuple[str, ...] = QUERY_VALUE
    dropout: float = 0.05
    seq: int = 512
    device: str = "a10g"
    batch: int = 8
    attention: Attention = Attention.FLASH
    alone: bool = False


def _decoder(
    family: str, hidden: int, layers: int, heads: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        **more,
    }


def _phi(hidden: int, layers: int, rotary: float) -> dict[str, Any]:
    return _decoder(
        "phi",
        hidden,
        layers,
        32,
        4 * hidden,
        51_200,
        partial_rotary_factor=rotary,
        hidden_act="gelu_pytorch_tanh",  # litgpt's is one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attention_dropout=0.0,
    )


LLAMA_2_7B = _decoder("llama", 4096, 32, 32, 11_008, 32_000)
MISTRAL_7B = _decoder("llama", 4096, 32, 32, 14_336, 32_000, num_key_value_heads=8)
TINY_LLAMA = _decoder("llama", 2048, 22, 32, 5632, 32_000, num_key_value_heads=4)
LLAMA_3_2_3B = _decoder("llama", 3072, 28, 24, 8192, 128_256, num_key_value_heads=8, head_dim=128)
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "vocab_size": 65_024,
    "tie_word_embeddings": False,
}
PHI_3 = _decoder("phi3", 3072, 32, 32, 8192, 32_064, pad_token_id=0)
GEMMA_7B = _decoder("gemma", 3072, 28, 16, 24_576, 256_000, head_dim=256)
# litgpt writes out attention with a soft cap (litgpt/model.py, scaled_dot_product_attention).
GEMMA_2_2B = _decoder("gemma2", 2304, 26, 8, 9216, 256_000, num_key_value_heads=4, head_dim=256)
GEMMA_2_9B = _decoder("gemma2", 3584, 42, 16, 14_336, 256_000, num_key_value_heads=8, head_dim=256)
_EAGER = Attention.EAGER

LITGPT = {
    "litgpt-lora-llama2-7b": Tuned(
        config=LLAMA_2_7B, rank=8, seq=1304, device="a100-40gb", batch=128, alone=True
    ),
    "litgpt-lora-phi-1.5": Tuned(
        config=_phi(2048, 24, 0.5), rank=8, seq=1044, device="a100-40gb", batch=128, alone=True
    ),
    "litgpt-hub-llama-2-7b": Tuned(config=LLAMA_2_7B, rank=32),
    "litgpt-hub-mistral-7b": Tuned(config=MISTRAL_7B, rank=32),
    "litgpt-hub-tiny-llama": Tuned(config=TINY_LLAMA, rank=32, targets=EVERYWHERE),
    "litgpt-hub-llama-3.2-3b": Tuned(config=LLAMA_3_2_3B, rank=32),
    "litgpt-hub-falcon-7b": Tuned(config=FALCON_7B, rank=32),
    "litgpt-hub-phi-2": Tuned(config=_phi(2560, 32, 0.4), rank=8, targets=EVERYWHERE),
    "litgpt-hub-phi-3-mini-4k": Tuned(config=PHI_3, rank=8, targets=EVERYWHERE),
    "litgpt-hub-gemma-7b": Tuned(
        config=GEMMA_7B, rank=16, targets=EVERYWHERE, dropout=0.1, batch=6
    ),
    "litgpt-hub-gemma2-2b": Tuned(
        config=GEMMA_2_2B, rank=8, targets=EVERYWHERE, dropout=0.1, batch=6, attention=_EAGER
    ),
    "litgpt-hub-gemma2-9b": Tuned(
        config=GEMMA_2_9B, rank=16, targets=EVERYWHERE, dropout=0.1, batch=6, attention=_EAGER
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe of torchtune; ``compiled`` runs have their own kernel profile.

    ``of_loading``: what the row has is the height of loading, not of training.
    """

    rank: int
    targets: tuple[str, ...] = QUERY_VALUE
    stored: StoredWeights = StoredWeights.COMPUTE
    recompute: Recompute = Recompute.FULL
    loss: Loss = Loss.UNSPECIFIED
    seq: int = 2048
    accumulation: int = 1
    compiled: bool = True
    parallelism: Parallelism = Parallelism()
    of_loading: bool = False
    quantized_by: Quantizer = Quantizer.UNSPECIFIED


_LAYERS = EVERYWHERE[:-1]
# llama2/7B_lora_single_device.yaml of April 2024: 64 microbatches, the whole loss in fp32.
_LLAMA_2: dict[str, Any] = {"seq": 512, "accumulation": 64, "compiled": False, "loss": Loss.FP32}
_QUANTIZED: dict[str, Any] = {"rank": 8, "targets": _LAYERS, "stored": StoredWeights.NF4_DOUBLE}
_IN_APRIL: dict[str, Any] = {"quantized_by": Quantizer.TORCHTUNE_2024_04}
# llama3_1/8B_qlora_single_device.yaml of August 2024: 16 microbatches, no compilation.
_IN_AUGUST: dict[str, Any] = {
    "quantized_by": Quantizer.TORCHTUNE_2024_08,
    "seq": 512,
    "accumulation": 16,
    "compiled": False,
}

# README, September 2024: batch 2, packed to 2,048, compiled; activations are checkpointed on the
# smaller cards. The pages on LoRA and QLoRA: llama2/7B_{lora,qlora}_single_device.yaml.
TORCHTUNE = {
    "tune-8b-lora-4090": Recipe(rank=8),
    "tune-8b-lora-a6000": Recipe(rank=8, recompute=Recompute.NONE),
    "tune-8b-qlora-4090": Recipe(**_QUANTIZED),
    "tune-70b-lora-8a100": Recipe(
        rank=16,
        targets=("query", "key", "value"),
        parallelism=Parallelism(world_size=8, sharding=Sharding.FSDP2),
    ),
    "tune-l2-7b-lora-qv-r8": Recipe(rank=8, **_LLAMA_2),
    "tune-l2-7b-lora-all-r8": Recipe(rank=8, targets=EVERYWHERE, **_LLAMA_2),
    "tune-l2-7b-lora-qv-r64": Recipe(rank=64, **_LLAMA_2),
    "tune-l2-7b-lora-all-r64": Recipe(rank=64, targets=EVERYWHERE, **_LLAMA_2),
    "tune-l2-7b-lora-init": Recipe(rank=8, of_loading=True, **_LLAMA_2),
    "tune-l2-7b-lora-train": Recipe(rank=8, **_LLAMA_2),
    "tune-l2-7b-qlora-init": Recipe(of_loading=True, **_QUANTIZED, **_IN_APRIL, **_LLAMA_2),
    # Reserved bytes never fall, and torchtune's statistics start anew from what is reserved
    # (utils/memory.py, memory_stats_log: max_memory_reserved, reset_peak_memory_stats): 9.29 GB are
    # the 9.13 of its loading, and a little.
    "tune-l2-7b-qlora-train": Recipe(of_loading=True, **_QUANTIZED, **_IN_APRIL, **_LLAMA_2),
    "tune-3.1-8b-qlora-init": Recipe(of_loading=True, **_QUANTIZED, **_IN_AUGUST),
    "tune-3.1-8b-qlora-init-reserved": Recipe(of_loading=True, **_QUANTIZED, **_IN_AUGUST),
}
# Steps of an ablation: two rows that differ in one setting.
STEPS = [
    ("tune-8b-lora-4090", "tune-8b-lora-a6000"),
    ("tune-8b-qlora-4090", "tune-8b-lora-4090"),
    ("tune-l2-7b-lora-qv-r8", "tune-l2-7b-lora-all-r8"),
    ("tune-l2-7b-lora-qv-r8", "tune-l2-7b-lora-qv-r64"),
    ("tune-l2-7b-lora-all-r8", "tune-l2-7b-lora-all-r64"),
    ("tune-l2-7b-lora-qv-r64", "tune-l2-7b-lora-all-r64"),
    ("tune-l2-7b-qlora-train", "tune-l2-7b-lora-train"),
]
