"""Users' own files, from their path through a real server to the answer."""

from pathlib import Path

import pytest

import haversack
from haversack import Document, DocumentFormat

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = GOLDEN / "hf" / "llama3_8b.json"
INPUTS = GOLDEN / "inputs"


def test_files_travel_and_the_answer_says_what_they_set() -> None:
    arguments = {"per_device_train_batch_size": 1, "max_length": 512, "mystery": 3}
    with haversack.connect() as client:
        answer = client.estimate(
            model=MODEL,
            configs=[INPUTS / "zero2_defaults.json", arguments],
            device="8xh100-80gb",
        )
        plan = client.plan(
            model=MODEL,
            configs=str(INPUTS / "zero2_defaults.json"),
            gpus=8,
            seq=512,
            budget="60GiB",
            frontier_points=0,
        )
    assert answer.verdict is haversack.EstimateVerdict.FITS
    assert any(each.startswith("training.seq = 512: documents[2]") for each in answer.settings)
    assert "documents[2]: mystery" in answer.ignored_inputs
    assert any("NVIDIA H100" in each for each in answer.assumptions)
    assert any(each.startswith("parallelism.sharding = ZERO_2") for each in plan.settings)


def test_a_file_that_contradicts_another_is_refused_with_its_path() -> None:
    other = Document(
        format=DocumentFormat.HF_TRAINING_ARGUMENTS,
        name="args.yaml",
        text="gradient_accumulation_steps: 2\n",
    )
    with haversack.connect() as client, pytest.raises(haversack.InvalidRequestError) as caught:
        client.estimate(model=MODEL, configs=[INPUTS / "zero2_defaults.json", other], seq=512)
    assert caught.value.field == "documents[2].text.gradient_accumulation_steps"
    assert "args.yaml" in str(caught.value)
    assert "zero2_defaults.json" in str(caught.value)
