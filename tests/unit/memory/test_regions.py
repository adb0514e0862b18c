"""Parts of a layer that run again: by hand on a small tape, and on the paper's layer."""

from dataclasses import replace

import pytest

from haversack.run import RecomputeModule
from haversack_server.memory import kernel_profile, regions
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.layers import layer_tape
from haversack_server.memory.policies import selective
from haversack_server.memory.tape import Operation, Storage, Tape, measure, measure_regions

S, B, H, A = 64, 2, 32, 4
PAPER = kernel_profile.load("paper-2205.05198")
GPT2 = read_hf_config(
    f"""{{"model_type": "gpt2", "n_embd": {H}, "n_layer": 1, "n_head": {A}, "n_positions": {S},
    "vocab_size": 96, "activation_function": "gelu", "attn_pdrop": 0.1, "resid_pdrop": 0.1}}"""
).architecture
SHAPE = Shape(microbatch=B, seq=S, attention=AttentionKind.EAGER)
MIXTRAL = read_hf_config(
    f"""{{"model_type": "mixtral", "hidden_size": {H}, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": {A}, "num_key_value_heads": {A},
    "vocab_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2}}"""
).architecture
DEEPSEEK = read_hf_config(
    f"""{{"model_type": "deepseek_v2", "hidden_size": {H}, "intermediate_size": 128,
    "moe_intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": {A},
    "num_key_value_heads": {A}, "vocab_size": 96, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 0, "kv_lora_rank": 8, "q_lora_rank": null,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}}"""
).architecture
FLASH = AttentionKind.FLASH
Part = RecomputeModule


def norm_and_product() -> Tape:
    """A norm of the input, whose result the product saves: 8 bytes each, the output 2."""
    sizes = {"x": 8, "n": 8, "y": 2}
    return Tape(
        name="small",
        input="x",
        output="y",
        storages={name: Storage(name, size, size) for name, size in sizes.items()},
        operations=(
            Operation(
                name="norm", reads=("x",), writes=("n",), saves=("x",), holds=("x",), scope="norm"
            ),
            Operation(name="product", reads=("n",), writes=("y",), saves=("n",), holds=("n",)),
        ),
    )


def test_a_checkpoint_keeps_its_result_and_dropping_it_does_not() -> None:
    tape = norm_and_product()
    checkpoint = regions.scoped(tape.operations, "norm")
    dropping = regions.scoped(tape.operations, "norm", drops_result=True)
    assert regions.kept(tape.operations, ()) == {"x", "n"}
    assert regions.kept(tape.operations, checkpoint) == {"x", "n"}
    assert regions.kept(tape.operations, dropping) == {"x"}
    assert measure_regions(tape, dropping, name="selective").retained_bytes == 2


def test_a_dropped_result_is_there_again_before_it_is_used() -> None:
    tape = norm_and_product()
    dropping = regions.scoped(tape.operations, "norm", drops_result=True)
    assert regions.rebuilt_at(tape.operations, dropping) == {1: [dropping[0]]}
    # Gradient of y (2), n made again (8), gradient of n (8).
    assert measure_regions(tape, dropping, name="selective").backward_peak_bytes == 18
    assert measure(tape, save=True).backward_peak_bytes == 18


def row(*modules: RecomputeModule) -> int:
    return selective(layer_tape(GPT2, PAPER, SHAPE), PAPER, modules).retained_bytes


@pytest.mark.parametrize(
    ("modules", "streams"),
    [
        ((Part.CORE_ATTENTION,), 34),  # arXiv 2205.05198, section 5
        ((Part.MLP, Part.CORE_ATTENTION), 34 - 16),  # 8 for each side of the activation
        ((Part.LAYER_NORM, Part.CORE_ATTENTION), 34 - 4),  # 2 for the result of each norm
        ((Part.LAYER_NORM, Part.MLP, Part.CORE_ATTENTION), 34 - 20),
    ],
)
def test_parts_of_the_papers_layer_by_hand(
    modules: tuple[RecomputeModule, ...], streams: int
) -> None:
    """Of s b h bytes: what table 2 of arXiv 2205.05198 counts for each part."""
    assert row(*modules) == streams * S * B * H


def test_every_further_part_keeps_less_and_costs_more() -> None:
    tape = layer_tape(MIXTRAL, kernel_profile.load("hf-eager"), SHAPE)
    rows = [
        selective(tape, PAPER, modules)
        for modules in (
            (Part.CORE_ATTENTION,),
            (Part.CORE_ATTENTION, Part.MOE_ACTIVATION),
            (Part.CORE_ATTENTION, Part.MOE),
            (Part.CORE_ATTENTION, Part.MOE, Part.MOE_ACTIVATION),
        )
    ]
    retained = [each.retained_bytes for each in rows]
    assert retained[0] > retained[1] > retained[2] == retained[3]
    moved = [each.moved_bytes for each in rows]
    assert moved[0] < moved[1] < moved[2] == moved[3]


def test_expanded_keys_and_values_are_dropped_and_their_compression_stays() -> None:
    """Megatron-LM's mla_up_proj: what is expanded to all heads is made again before it is used."""
    tape = layer_tape(DEEPSEEK, kernel_profile.load("hf-eager"), replace(SHAPE, attention=FLASH))
    save, expansion = measure(tape, save=True), selective(tape, PAPER, (Part.LATENT_EXPANSION,))
    keys_and_values = 2 * S * B * A * (2 * 16 + 8)  # keys of 16 + 8, values of 16, in bf16
    assert save.retained_bytes - expansion.retained_bytes >= keys_and_values
    assert expansion.backward_peak_bytes <= save.backward_peak_bytes + keys_and_values


def test_parts_that_a_layer_lacks_change_nothing() -> None:
    assert (
        row(Part.MOE)
        == row(Part.MOE_ACTIVATION)
        == measure(layer_tape(GPT2, PAPER, SHAPE), save=True).retained_bytes
    )
