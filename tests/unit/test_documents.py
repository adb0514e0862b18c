"""Documents from what callers have: paths, texts, mappings, command lines; formats from content."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.memory.inputs.samples import SAMPLES

from haversack.documents import document
from haversack.errors import InvalidRequestError
from haversack.formats import NAMES
from haversack.parallelism import Parallelism
from haversack.requests import estimate_request, plan_request
from haversack.run import Device, Document, DocumentFormat

INPUTS = Path(__file__).parents[1] / "golden" / "inputs"
MODEL = INPUTS.parent / "hf" / "llama3_8b.json"


@pytest.mark.parametrize(("name", "kind"), SAMPLES.items())
def test_the_format_of_a_file_is_told_from_its_content(name: str, kind: DocumentFormat) -> None:
    made = document(INPUTS / name)
    assert made.format is kind
    assert made.name == name
    assert document(made.text).format is kind


@pytest.mark.parametrize(
    "model", sorted((INPUTS.parent / "hf").glob("*.json")), ids=lambda p: p.stem
)
def test_a_models_configuration_is_told_from_all_others(model: Path) -> None:
    assert document(model).format is DocumentFormat.HF_CONFIG


def test_a_format_in_front_of_a_path_is_taken() -> None:
    made = document(f"megatron:{INPUTS / 'zero2_defaults.json'}")
    assert made.format is DocumentFormat.MEGATRON_ARGUMENTS
    titan = document(f"torchtitan:{INPUTS / 'llama3_8b_2026_saved.json'}")
    assert titan.format is DocumentFormat.TORCHTITAN_JSON


def test_a_mapping_is_a_document_too() -> None:
    made = document({"zero_optimization": {"stage": 2}})
    assert made.format is DocumentFormat.DEEPSPEED
    assert document({}, DocumentFormat.ACCELERATE).format is DocumentFormat.ACCELERATE


def test_a_document_passes_as_it_is() -> None:
    given = Document(format=DocumentFormat.DEEPSPEED, text="{}")
    assert document(given) is given


def test_keys_that_tell_nothing_are_refused_with_the_names_of_formats(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text('{"a": 1}')
    with pytest.raises(InvalidRequestError) as caught:
        document(file)
    assert caught.value.field == "documents[0].text"
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("text", ["{", "{]", '{"a": 1, "a": 2}', "[x", "\n\n", "a: [1\n"])
def test_a_text_that_is_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        document(text + "\n")


def test_a_broken_file_is_still_told_so_that_the_server_says_what_is_wrong() -> None:
    made = document('{"zero_optimization": {"stage": 2},}')
    assert made.format is DocumentFormat.DEEPSPEED


def test_a_missing_file_is_one_sentence() -> None:
    with pytest.raises(InvalidRequestError, match="no such file"):
        document("deepspeed:nowhere.json")


@pytest.mark.parametrize("given", [3, None, b"x"])
def test_what_is_no_path_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError):
        document(given)


def test_a_request_has_its_model_first_then_its_files_then_its_command_line() -> None:
    asked = estimate_request(
        model=MODEL,
        configs=[INPUTS / "zero2_defaults.json", {"per_device_train_batch_size": 1}],
        launch="torchrun --nproc-per-node 8 train.py --gradient_checkpointing --bf16",
    )
    kinds = [each.format for each in asked.documents]
    assert kinds == [
        DocumentFormat.HF_CONFIG,
        DocumentFormat.DEEPSPEED,
        DocumentFormat.HF_TRAINING_ARGUMENTS,
        DocumentFormat.HF_TRAINING_ARGUMENTS,
    ]
    assert asked.documents[3].name == "command line"


def test_one_file_needs_no_list() -> None:
    asked = plan_request(model=MODEL, configs=str(INPUTS / "zero2_defaults.json"))
    assert len(asked.documents) == 2


def test_a_file_that_cannot_be_told_names_its_place() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        estimate_request(model=MODEL, configs=[INPUTS / "zero2_defaults.json", {"a": 1}])
    assert caught.value.field == "documents[2].text"


def test_a_command_line_of_another_program_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="neither Megatron-LM's options nor Training"):
        estimate_request(model=MODEL, launch="ls --all")


def test_too_many_files_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="18 files are too many"):
        estimate_request(model=MODEL, configs=[{"zero_optimization": {}}] * 17)


def test_a_device_may_have_a_number_in_front() -> None:
    asked = estimate_request(parameter_count=1, device="8xh100-80gb")
    assert asked.device == Device(name="h100-80gb")
    assert asked.parallelism == Parallelism(world_size=8)
    assert estimate_request(parameter_count=1, device="rtx-4090").device.name == "rtx-4090"


def test_a_number_of_devices_that_differs_from_the_ranks_is_refused() -> None:
    assert estimate_request(parameter_count=1, device="8xh200", gpus=8).device.name == "h200"
    with pytest.raises(InvalidRequestError, match="16 ranks, but 8 devices"):
        estimate_request(parameter_count=1, device="8xh200", gpus=16)


@pytest.mark.parametrize("device", ["", "8x", 3])
def test_a_device_without_a_name_is_refused(device: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        estimate_request(parameter_count=1, device=device)
    assert caught.value.field == "device.name"
