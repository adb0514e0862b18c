"""Buffers of context parallelism: what attention holds while keys and values go round.

The sequence is divided, so each rank keeps queries, keys, values and results of its own tokens;
what the others have passes through buffers that live within one layer's attention. Read in
Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:

- RING (AttnFuncWithCPAndKVP2P): forward keeps the chunks that arrived in a list until it ends, its
  own copy among them, so keys and values of the whole sequence; backward has two slots of keys and
  values with their gradients, of which one slot's gradients become the result;
- ALL_GATHER (AttnFuncWithCPAndKVAllGather): keys and values gathered, and once more in order;
  backward has them gathered, with gradients of the whole sequence;
- ALL_TO_ALL (AttnFuncWithCPAndQKVOA2A): one more copy of queries, keys and values each way.

Nothing here shrinks with more ranks, since a rank's share grows with their number.
"""

from typing import NamedTuple

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel


class Exchange(NamedTuple):
    """Bytes beside the tensors that attention reads and writes anyway."""

    forward_bytes: int
    backward_bytes: int


NONE = Exchange(0, 0)


def exchange(kind: ContextParallel, cp: int, query_bytes: int, keys_bytes: int) -> Exchange:
    """Give the buffers of one layer; the bytes are a rank's own queries, and keys with values."""
    if cp == 1:
        return NONE
    if kind is ContextParallel.ALL_GATHER:
        return Exchange(2 * cp * keys_bytes, 2 * cp * keys_bytes)
    if kind is ContextParallel.ALL_TO_ALL:
        return Exchange(query_bytes + keys_bytes, query_bytes + keys_bytes)
    return Exchange(cp * keys_bytes, 3 * keys_bytes)


def divided(seq: int, cp: int) -> int:
    """Give a rank's share of a sequence.

    Causal attention is balanced by giving every rank an early and a late piece, so the sequence is
    divided in 2 x cp (Megatron-LM, megatron/core/utils.py, get_batch_on_this_cp_rank).
    """
    pieces = 2 * cp if cp > 1 else 1
    if seq % pieces:
        raise InvalidRequestError(
            f"seq={seq} is not divided by 2 x cp = {pieces}; use a multiple of it",
            field="training.seq",
        )
    return seq // cp
