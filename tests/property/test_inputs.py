"""Junk in documents: one clear sentence or an answer, never a crash, and no key dropped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from haversack.errors import InvalidRequestError
from haversack.run import DocumentFormat
from haversack_server.memory.hf_config import MAX_PARAMETERS, read_hf_config
from haversack_server.memory.hf_families import FAMILIES
from haversack_server.memory.inputs import (
    accelerate,
    deepspeed,
    megatron,
    torchtitan,
    training_arguments,
)
from haversack_server.memory.inputs.formats import ADAPTERS
from haversack_server.memory.inputs.reader import flattened, one_line
from haversack_server.memory.inputs.reading import Reading, Source

SOURCE = Source("file", "documents[0].text")
# Keys that mean something somewhere, so that junk reaches past the first look.
WORDS = """
stage zero_optimization bf16 enabled optimizer type params fsdp fsdp_config fsdp_version
fsdp_reshard_after_forward fsdp_sharding_strategy training parallelism activation_checkpoint mode
seq_len num-layers hidden-size num-attention-heads micro-batch-size moe-layer-freq num-experts
recompute-granularity recompute-modules optim deepspeed distributed_type num_processes num_machines
mixed_precision reduce_bucket_size pipeline-model-parallel-size deepspeed_config zero_stage
num-layers-per-virtual-pipeline-stage decoder-first-pipeline-num-layers train_batch_size
per_device_train_batch_size
"""
KEYS = st.sampled_from(WORDS.split()) | st.text(max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["auto", "cpu", "FSDP", "DEEPSPEED", "full", "selective", "2", "5e8", "bf16"])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=8)
OF_OBJECTS = sorted(set(ADAPTERS) - {DocumentFormat.TORCHTITAN_TOML})
MODULES = (accelerate, deepspeed, megatron, torchtitan, training_arguments)


def check_refusal(wrong: InvalidRequestError, field: str) -> None:
    """Check that what was refused is said in sentences that name a field of the text each."""
    assert wrong.violations
    for violation in wrong.violations:
        assert violation.field.startswith(field)
        assert 0 < len(violation.description) < 600


def read(kind: DocumentFormat, text: str) -> Reading | None:
    """Read a text; None where it was refused, which is checked."""
    try:
        return ADAPTERS[kind](text, SOURCE)
    except InvalidRequestError as wrong:
        check_refusal(wrong, SOURCE.field)
        return None


def leaves(kind: DocumentFormat, values: Mapping[str, Any]) -> set[str]:
    """The keys of a file as its adapter writes them: Megatron's sections only group arguments."""
    paths = [path for path, _ in flattened(values)]
    if kind is not DocumentFormat.MEGATRON_ARGUMENTS:
        return set(paths)
    names = (one_line(path.rpartition(".")[2].strip('"')) for path in paths)
    return {name.removeprefix("--").replace("_", "-") for name in names}


def last_word(key: str) -> str:
    return key.rpartition(".")[2]


@settings(max_examples=300, deadline=None)
@example({". \x08": None}, DocumentFormat.MEGATRON_ARGUMENTS)
@given(OBJECTS, st.sampled_from(OF_OBJECTS))
def test_any_object_is_refused_or_every_key_of_it_is_accounted_for(
    values: dict[str, Any], kind: DocumentFormat
) -> None:
    reading = read(kind, json.dumps(values))
    if reading is None:
        return  # refused, in sentences that name a field
    unused = [*reading.ignored, *reading.silent]
    keys = leaves(kind, values)
    assert len(set(unused)) == len(unused)
    assert set(unused) <= keys
    strange = leaves(kind, {key: each for key, each in values.items() if key not in WORDS.split()})
    assert {key for key in strange if last_word(key) not in WORDS.split()} <= set(unused)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from(sorted(ADAPTERS)))
def test_any_text_is_read_or_refused(text: str, kind: DocumentFormat) -> None:
    reading = read(kind, text)
    if reading is not None:
        said = (*reading.ignored, *reading.unmodelled, *reading.assumptions)
        assert all("\n" not in sentence for sentence in said)
        assert reading.architecture is None  # no text of this alphabet describes a model


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text("xyz", min_size=1, max_size=6), SCALARS, max_size=6))
def test_no_key_that_nobody_knows_is_dropped(values: dict[str, Any]) -> None:
    text = json.dumps(values)
    for kind in (DocumentFormat.DEEPSPEED, DocumentFormat.TORCHTITAN_JSON):
        reading = read(kind, text)
        assert reading is not None
        assert set(reading.ignored) == {key for key, _ in flattened(values)}


HF_WORDS = """
model_type architectures hidden_size intermediate_size num_hidden_layers num_attention_heads
num_key_value_heads head_dim vocab_size tie_word_embeddings text_config n_embd n_layer n_head
num_local_experts num_experts_per_tok q_lora_rank kv_lora_rank first_k_dense_replace d_model d_kv
d_ff image_size patch_size rope_scaling sliding_window layer_types hidden_act quantization_config
"""
HF_KEYS = st.sampled_from(HF_WORDS.split()) | st.text(max_size=8)
HF_VALUES = (
    st.sampled_from([*FAMILIES, "silu", "gelu", 8, 16, 64, 256, True, False, None])
    | SCALARS
    | st.lists(SCALARS, max_size=3)
    | st.dictionaries(HF_KEYS, SCALARS, max_size=4)
)


HF = Path(__file__).parents[1] / "golden" / "hf"
REAL = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(HF.glob("*.json"))]
KNOWN = set(HF_WORDS.split()).union(*REAL)
# Whole files with a few keys that are off, so that most are read; and junk under a known name.
MODELS = st.builds(
    lambda real, values: real | values,
    st.sampled_from(REAL),
    st.dictionaries(HF_KEYS, HF_VALUES, max_size=3),
) | st.builds(
    lambda family, values: {"model_type": family} | values,
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(HF_KEYS, HF_VALUES, max_size=12),
)


@settings(max_examples=400, deadline=None)
@given(MODELS)
def test_any_model_is_refused_or_has_layers_and_every_key_accounted_for(
    values: dict[str, Any],
) -> None:
    try:
        found = read_hf_config(json.dumps(values))
    except InvalidRequestError as wrong:
        check_refusal(wrong, SOURCE.field)
        return
    model = found.architecture
    assert model.layers >= 1
    assert len(model.units) > model.layers
    assert all(unit.parameter_count > 0 or unit.tied_to for unit in model.units)
    assert 0 < model.parameter_count <= MAX_PARAMETERS
    assert set(values) - KNOWN <= set(found.ignored)


def test_every_adapter_has_a_version() -> None:
    assert all(module.VERSION >= 1 for module in MODULES)
