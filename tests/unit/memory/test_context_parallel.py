"""Context parallelism by hand: what a rank keeps is its share, what passes through is not."""

import pytest

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel, Parallelism
from haversack.run import Attention, Document, DocumentFormat, Training, TrainingRun
from haversack_server.memory.chain import Option
from haversack_server.memory.context_parallel import divided, exchange
from haversack_server.memory.model_run import ModelRun, model_run

SEQ, HIDDEN, HEADS, KEYS = 256, 64, 4, 2  # key/value heads
DOCUMENT = Document(
    format=DocumentFormat.HF_CONFIG,
    text=f"""{{"model_type": "llama", "hidden_size": {HIDDEN}, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": {HEADS}, "num_key_value_heads": {KEYS},
    "vocab_size": 64, "tie_word_embeddings": false}}""",
)


def run_of(
    cp: int,
    attention: Attention = Attention.FLASH,
    seq: int = SEQ,
    kind: ContextParallel = ContextParallel.RING,
) -> ModelRun:
    return model_run(
        TrainingRun(
            documents=(DOCUMENT,),
            training=Training(microbatch=1, seq=seq, attention=attention),
            parallelism=Parallelism(cp=cp, context_parallel=kind),
        )
    )


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        # Queries of 8 bytes, keys and values of 6, 4 ranks.
        (ContextParallel.RING, 4 * 6, 3 * 6),
        (ContextParallel.ALL_GATHER, 2 * 4 * 6, 2 * 4 * 6),
        (ContextParallel.ALL_TO_ALL, 8 + 6, 8 + 6),
    ],
)
def test_buffers_by_hand(kind: ContextParallel, forward: int, backward: int) -> None:
    assert exchange(kind, 4, 8, 6) == (forward, backward)
    assert exchange(kind, 1, 8, 6) == (0, 0)


def test_a_rank_keeps_its_share_of_the_tokens() -> None:
    """Everything in a layer is linear in the tokens of a rank but the position tables."""
    whole, half = (run_of(cp).chain.blocks[1].options[0].retained_bytes for cp in (1, 2))
    assert whole == 2 * half


def test_what_passes_through_attention_grows_with_the_ranks_and_not_with_their_share() -> None:
    """With 128 tokens on each of 32 or 64 ranks, what passes through is most of a layer."""

    def layer(kind: ContextParallel, cp: int) -> Option:
        return run_of(cp, seq=128 * cp, kind=kind).chain.blocks[1].options[0]

    keys = 2 * 128 * KEYS * (HIDDEN // HEADS) * 2  # keys and values of a rank's tokens, in bf16
    gathered, wider = (layer(ContextParallel.ALL_GATHER, cp) for cp in (32, 64))
    assert gathered.retained_bytes == wider.retained_bytes
    assert wider.forward_peak_bytes - gathered.forward_peak_bytes == 2 * 32 * keys
    assert wider.backward_peak_bytes - gathered.backward_peak_bytes == 2 * 32 * keys
    ring = layer(ContextParallel.RING, 32)
    assert gathered.forward_peak_bytes - ring.forward_peak_bytes == 32 * keys


@pytest.mark.parametrize(
    ("cp", "attention", "seq", "field"),
    [(4, Attention.FLASH, 20, "training.seq"), (2, Attention.EAGER, 64, "training.attention")],
)
def test_what_cannot_be_divided_is_named(
    cp: int, attention: Attention, seq: int, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        run_of(cp, attention, seq)
    assert wrong.value.field == field


def test_a_sequence_is_cut_into_two_pieces_for_each_rank() -> None:
    assert divided(64, 4) == 16
    assert divided(7, 1) == 7
