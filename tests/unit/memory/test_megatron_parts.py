"""What layers of Megatron-LM keep, by hand: latent attention on shards, experts, predictors."""

from dataclasses import replace
from typing import Any

from haversack.run import RecomputeModule
from haversack_server.memory.architecture import Activation, Architecture, Norm
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape, head_tape
from haversack_server.memory.inputs.megatron_weights import with_megatron_units
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.layers import layer_tape
from haversack_server.memory.options import option_table
from haversack_server.memory.prediction import predicting_head
from haversack_server.memory.tape import Tape, measure, saved_storages
from haversack_server.memory.traits import Latent, QueryKeyNorm, Routing

PROFILE = load("megatron-te")
ROWS, HIDDEN, HEADS, WIDTH, TP = 256, 64, 4, 16, 2
QUERY, KEY_VALUE, PLAIN, ROTARY, VALUE = 24, 32, 16, 8, 12
EXPERTS, CHOSEN, FFN, SHARED = 8, 2, 48, 32
BF16, FLOAT = 2, 4


def model(**changes: Any) -> Architecture:
    made = Architecture(
        family="megatron-gpt",
        hidden=HIDDEN,
        layers=2,
        heads=HEADS,
        kv_heads=HEADS,
        head_dim=WIDTH,
        ffn=FFN,
        vocab=512,
        tied=False,
        max_positions=ROWS,
        norm=Norm.RMS,
        activation=Activation.SILU,
    )
    return replace(made, **changes)


LATENT = Latent(query_rank=QUERY, key_value_rank=KEY_VALUE, plain=PLAIN, rotary=ROTARY, value=VALUE)
MLA = model(latent=LATENT, query_key_norm=QueryKeyNorm.HEAD)
MOE = model(experts=EXPERTS, experts_per_token=CHOSEN, routing=Routing(shared_ffn=SHARED))
SHAPE = Shape(microbatch=1, seq=ROWS, attention=AttentionKind.EAGER)
SHARDS = replace(SHAPE, tp=TP, sequence_parallel=True)


def alone(architecture: Architecture, place: int) -> Architecture:
    """One unit of a model: 1 is its first layer, -1 its head."""
    made = with_megatron_units(architecture)
    return replace(made, units=(made.units[place],))


def kept(tape: Tape, *names: str) -> int:
    """Bytes of what is kept of storages whose names begin so."""
    saved = saved_storages(tape)
    return sum(tape.storages[each].size_bytes for each in saved if each.startswith(names))


def test_compressions_are_those_of_a_ranks_own_tokens() -> None:
    tape = layer_tape(MLA, PROFILE, SHARDS)
    own = ROWS // TP
    assert kept(tape, "query, compressed") == own * QUERY * BF16
    assert kept(tape, "key and value, compressed") == own * (KEY_VALUE + ROTARY) * BF16
    # Elsewhere every rank compresses all tokens.
    whole = layer_tape(MLA, load("hf-eager"), SHARDS)
    (size,) = (row.size_bytes for name, row in whole.storages.items() if "query, comp" in name)
    assert size == ROWS * QUERY * BF16


def test_queries_keys_and_values_are_kept_and_their_expansions_are_not() -> None:
    tape, heads = layer_tape(MLA, PROFILE, SHARDS), HEADS // TP
    each = ROWS * heads * BF16
    assert kept(tape, "query joined") == kept(tape, "key joined") == each * (PLAIN + ROTARY)
    assert kept(tape, "value copied") == each * VALUE
    assert not kept(tape, "key and value #", "query #", "gathered")


def test_the_expansion_is_dropped_where_it_runs_again() -> None:
    shape = replace(SHARDS, recompute_modules=(RecomputeModule.LATENT_EXPANSION,))
    units = option_table(alone(MLA, 1), PROFILE, shape)
    saved, partly = units[0].option("save"), units[0].option("selective")
    each = ROWS * HEADS // TP * BF16
    made_again = each * (2 * (PLAIN + ROTARY) + VALUE)
    # The norms of the compressions run again too, and their results are made again with them.
    again = ROWS // TP * (QUERY + KEY_VALUE) * BF16 + 2 * ROWS // TP * FLOAT
    assert saved.retained_bytes - partly.retained_bytes >= made_again
    assert saved.retained_bytes - partly.retained_bytes <= made_again + 2 * again


def test_the_results_of_experts_are_not_kept() -> None:
    tape, sent = layer_tape(MOE, PROFILE, SHAPE), ROWS * CHOSEN
    assert kept(tape, "chosen tokens") == sent * HIDDEN * BF16
    assert kept(tape, "expert in") == sent * 2 * FFN * BF16
    assert kept(tape, "weighed gated activation") == sent * FFN * BF16
    assert kept(tape, "shared in") == ROWS * 2 * SHARED * BF16
    assert not kept(tape, "expert down", "sum over experts", "combined rows")


def test_experts_without_a_gate_have_one_product_and_keep_two_results() -> None:
    tape = layer_tape(replace(MOE, gated=False, activation=Activation.GELU), PROFILE, SHAPE)
    sent = ROWS * CHOSEN
    assert kept(tape, "expert in") == sent * FFN * BF16
    assert kept(tape, "gelu", "weighed activation") == (2 * sent * FFN + ROWS * SHARED) * BF16


def test_a_predictor_keeps_a_layer_and_the_softmax_of_its_logits() -> None:
    plain, predicting = model(), model(prediction_layers=1)
    single = measure(head_tape(plain, PROFILE, SHAPE), save=True)
    both = measure(predicting_head(predicting, PROFILE, SHAPE), save=True)
    layer = measure(layer_tape(plain, PROFILE, SHAPE), save=True)
    softmax = ROWS * plain.vocab * FLOAT
    more = both.retained_bytes - single.retained_bytes - layer.retained_bytes - softmax
    # Two inputs of norms and their results side by side, and what the layer itself takes.
    streams = ROWS * HIDDEN * BF16
    assert 4 * streams <= more <= 8 * streams
    assert both.forward_peak_bytes > single.forward_peak_bytes + softmax


def test_full_recomputation_keeps_what_a_predictor_takes_in() -> None:
    head = option_table(alone(model(prediction_layers=1), -1), PROFILE, SHAPE)[0]
    saved, again = head.option("save"), head.option("recompute")
    layer = measure(layer_tape(model(), PROFILE, SHAPE), save=True)
    assert saved.retained_bytes - again.retained_bytes >= layer.retained_bytes
    # Logits and losses do not run again: both of their softmax are kept.
    assert again.retained_bytes > 2 * ROWS * 512 * FLOAT
    assert again.flops > 0
