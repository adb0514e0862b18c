"""Bytes that a layer keeps, against measured and published rows: equal, to the byte.

The rows count what autograd saves: the layer's input where an operation saves it, and not the
output. Ours counts the output and never the input, so the rows are compared with the tape's saved
storages. Rotary tables, which a row counts in the layer, belong to our embedding unit.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from haversack_server.memory import kernel_profile
from haversack_server.memory.architecture import Activation, Architecture
from haversack_server.memory.attention import CORE, AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.hf_families import FAMILIES
from haversack_server.memory.kernel_profile import KernelProfile, RmsNormKernel
from haversack_server.memory.layers import layer_tape
from haversack_server.memory.tape import OptionRow, Tape, measure, saved_storages

GOLDEN = Path(__file__).parents[2] / "golden"
BYTES = 2  # bf16


def rows(name: str) -> list[Any]:
    found = json.loads((GOLDEN / name).read_text())["rows"]
    return [pytest.param(row, id=row["id"]) for row in found]


def architecture(sizes: dict[str, int], family: str, dropout: float) -> Architecture:
    gpt2 = family == "gpt2"
    return Architecture(
        family=family,
        hidden=sizes["hidden"],
        layers=1,
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        head_dim=sizes["hidden"] // sizes["heads"],
        ffn=sizes["ffn"],
        vocab=1,
        tied=True,
        max_positions=sizes["seq"],
        activation=Activation.GELU if gpt2 else Activation.SILU,
        attention_dropout=dropout,
        residual_dropout=dropout,
        **FAMILIES[family].traits,
    )


def saved_bytes(tape: Tape) -> int:
    saved = saved_storages(tape)
    of_input = tape.storages[tape.input].size_bytes if tape.input in saved else 0
    return tape.size_of(saved) + of_input


def measured_profile(row: dict[str, Any]) -> KernelProfile:
    """Return the CPU's profile as the row was run: dropout as on CUDA, or a norm by hand."""
    profile = kernel_profile.load("cpu")
    if "native_dropout" in row["id"]:
        profile = replace(profile, dropout_mask_bytes=1)
    if row["id"].endswith("manual"):
        profile = replace(profile, rms_norm=RmsNormKernel.PYTHON)
    return profile


@pytest.mark.parametrize("row", rows("cpu_blocks.json"))
def test_a_hand_written_layer_on_the_cpu_saves_what_was_measured(row: dict[str, Any]) -> None:
    sizes = row["model"]
    gpt2 = "gpt2" in row["id"]
    model = architecture(sizes, "gpt2" if gpt2 else "llama", 0.1 if gpt2 else 0.0)
    shape = Shape(
        microbatch=sizes["microbatch"],
        seq=sizes["seq"],
        attention=AttentionKind(row["attention"]),
    )
    tables = 0 if gpt2 else 2 * sizes["seq"] * model.head_dim * BYTES
    saved = saved_bytes(layer_tape(model, measured_profile(row), shape))
    assert saved + tables == row["value_bytes"]


def paper_option(row: dict[str, Any]) -> OptionRow:
    """Return the option of a layer that the row of the paper tells of."""
    sizes, degrees = row["model"], row["parallelism"]
    shape = Shape(
        microbatch=sizes["microbatch"],
        seq=sizes["seq"],
        attention=AttentionKind.EAGER,
        tp=degrees["tp"],
        sequence_parallel=degrees["sp"],
    )
    profile = kernel_profile.load("paper-2205.05198")
    tape = layer_tape(architecture(sizes, "gpt2", 0.1), profile, shape)
    return measure(
        tape,
        save=row["ac"] != "full",
        recompute_scope=CORE if row["ac"] == "selective" else "",
    )


@pytest.mark.parametrize("row", rows("formula_activations.json"))
def test_a_layer_keeps_what_the_paper_says(row: dict[str, Any]) -> None:
    # Input and output are of one size; the paper counts the one, retained_bytes the other.
    assert paper_option(row).retained_bytes == row["value_bytes"]


def test_the_papers_formula_holds_by_hand() -> None:
    # s=4 b=1 h=8 a=2: s b h (34 + 5 a s / h) = 32 * 34 + 5 * 2 * 16.
    sizes = {"hidden": 8, "heads": 2, "kv_heads": 2, "ffn": 32, "seq": 4}
    shape = Shape(microbatch=1, seq=4, attention=AttentionKind.EAGER)
    profile = kernel_profile.load("paper-2205.05198")
    tape = layer_tape(architecture(sizes, "gpt2", 0.1), profile, shape)
    assert measure(tape, save=True).retained_bytes == 32 * 34 + 5 * 2 * 16
