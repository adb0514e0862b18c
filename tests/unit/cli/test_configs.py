"""Files, command lines and devices as options: what they become, and which option is at fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack.run import DocumentFormat

Run = Callable[..., Any]

INPUTS = Path(__file__).parents[2] / "golden" / "inputs"
MODEL = str(INPUTS.parent / "hf" / "llama3_8b.json")
ZERO_2 = str(INPUTS / "zero2_defaults.json")
MEGATRON = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --micro-batch-size 1"


def test_files_become_documents_in_their_order(client: Any, haversack_run: Run) -> None:
    accelerate = str(INPUTS / "fsdp2_reshard.yaml")
    done = haversack_run(
        "estimate", "--model", MODEL, "--config", ZERO_2, "--config", f"accelerate:{accelerate}"
    )
    assert done.code == 0, done.err
    assert [each.name for each in client.asked[0].documents] == [
        "llama3_8b.json",
        "zero2_defaults.json",
        "fsdp2_reshard.yaml",
    ]


def test_a_command_line_becomes_a_document(client: Any, haversack_run: Run) -> None:
    assert haversack_run("estimate", "--launch", MEGATRON).code == 0
    (document,) = client.asked[0].documents
    assert document.format is DocumentFormat.MEGATRON_ARGUMENTS
    assert document.text == MEGATRON


def test_a_device_brings_its_number(client: Any, haversack_run: Run) -> None:
    assert haversack_run("estimate", "--model", MODEL, "--device", "8xh100-80gb").code == 0
    (asked,) = client.asked
    assert asked.device.name == "h100-80gb"
    assert asked.parallelism.world_size == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "nowhere.json"), ("no such file", "--config nowhere.json")),
        (("--config", f"deep:{ZERO_2}"), ("no such file", "--config")),
        (("--launch", "ls"), ("documents[1].text", "--launch")),
        (("--device", "8x"), ("device.name", "--device")),
        (("--device", "8xh200", "--gpus", "4"), ("4 ranks, but 8 devices", "--gpus")),
    ],
)
def test_what_will_not_do_names_its_option(
    client: Any, haversack_run: Run, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = haversack_run("estimate", "--model", MODEL, *options)
    assert done.code == 2
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


def test_a_run_without_a_model_is_told_of_the_option_for_it(
    client: Any, haversack_run: Run
) -> None:
    client.estimated = InvalidRequestError("add its config.json", field="documents")
    done = haversack_run("estimate", "--config", ZERO_2)
    assert done.code == 2
    assert done.err == "haversack: documents: add its config.json (--model)\n"


def test_what_the_server_refuses_names_the_file(client: Any, haversack_run: Run) -> None:
    client.estimated = InvalidRequestError("no", field="documents[1].text.zero_optimization.stage")
    done = haversack_run("estimate", "--model", MODEL, "--config", ZERO_2)
    assert done.code == 2
    assert "--config" in done.err
    assert "zero2_defaults.json" in done.err
