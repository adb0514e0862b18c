"""CPU time of a profile of Llama 3 by its depth: 32 layers (8B) against 80 (70B).

Pairs are interleaved and the median pair counts, as the clock of a shared machine drifts. Weights
are fake. What grows with depth is the first forward, which runs every layer to see that they are
alike; the steps after it run a few layers, with stand-ins for the others.
"""

import gc
import statistics
import time
from collections.abc import Iterator

import torch
import transformers
from tests.bench.table import Row, at_most
from torch._subclasses.fake_tensor import FakeTensorMode

from haversack.torch import Workload, profile

SECTION = "profiles"
PAIRS = 3
TOKENS = 8192


def rows() -> Iterator[Row]:
    """Profile both shapes in turn, after one layer that pays for what the first call loads."""
    _seconds(1024, 2048, 1)
    ratios = []
    for pair in range(1, PAIRS + 1):
        small, large = _seconds(4096, 14336, 32), _seconds(8192, 28672, 80)
        ratios.append(large / small)
        yield Row(SECTION, f"Llama 3 8B shape, T={TOKENS}, pair {pair}", small, "s of CPU")
        yield Row(SECTION, f"Llama 3 70B shape, T={TOKENS}, pair {pair}", large, "s of CPU")
        yield Row(SECTION, f"70B / 8B, pair {pair}", large / small, "x")
    said = f"70B / 8B, median of {PAIRS} interleaved pairs"
    yield at_most(SECTION, said, statistics.median(ratios), 1.3)


def _seconds(hidden: int, inner: int, layers: int) -> float:
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    model = _model(hidden, inner, layers)
    workload = Workload(model, kwargs={"input_ids": tokens, "labels": tokens})
    gc.collect()  # what the profile before left behind is not on this one's account
    start = time.process_time()
    profile(workload)
    return time.process_time() - start


def _model(hidden: int, inner: int, layers: int) -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=TOKENS,
        use_cache=False,
        dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    with FakeTensorMode():
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model
