"""What commands ask, whom they ask, and what they print."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from shlex import split
from typing import Any

import pytest

import haversack
from haversack import keywords
from haversack.cli.estimate import estimate
from haversack.cli.plan import plan
from haversack.errors import InternalError
from haversack.estimate import Estimate, EstimateVerdict, WhatIfAnswer
from haversack.parallelism import Sharding
from haversack.plan import Plan, PlanStatus
from haversack.run import (
    Budget,
    BytesKind,
    DocumentFormat,
    NumberType,
    Precision,
    Recompute,
    StateBytes,
    Unit,
    WorkloadReference,
)
from haversack.verify import (
    Facet,
    ListWorkloadsResponse,
    VerifyEvent,
    VerifyProgress,
    VerifyQueued,
    VerifyReport,
    VerifyRequest,
    VerifyRunning,
    VerifySchedule,
    VerifyVerdict,
    WorkloadInfo,
)

Run = Callable[..., Any]
Write = Callable[[str, str], str]

MODEL_LINE = split("--gpus 8 --gpu-memory 80GiB --zero 3 --seq 8192 --microbatch 1")


def test_estimate_of_a_model_asks_what_was_written(
    client: Any, haversack_run: Run, write: Write
) -> None:
    path = write("config.json", '{"model_type": "llama"}')
    assert haversack_run("estimate", "--model", path, *MODEL_LINE).code == 0
    (request,) = client.asked
    assert request.documents[0].format is DocumentFormat.HF_CONFIG
    assert request.documents[0].text == '{"model_type": "llama"}'
    assert request.documents[0].name == "config.json"
    assert request.parallelism.world_size == 8
    assert request.parallelism.sharding is Sharding.ZERO_3
    assert request.device.memory_bytes == 80 * 2**30
    assert (request.training.seq, request.training.microbatch) == (8192, 1)


def test_a_folder_stands_for_its_config(client: Any, haversack_run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    haversack_run("estimate", "--model", str(tmp_path))
    assert client.asked[0].documents[0].text == "{}"


def test_units_are_resharded_to_a_number_of_ranks(client: Any, haversack_run: Run) -> None:
    given = split("estimate --parameter-count 8 --gpus 8 --fsdp --reshard-after-forward")
    haversack_run(*given, "4", "--what-if", "reshard_after_forward=2")
    (request,) = client.asked
    assert request.parallelism.reshard_after_forward is None
    assert request.parallelism.reshard_ranks == 4
    assert request.what_ifs[0].parallelism.reshard_ranks == 2
    failed = haversack_run(*given, "half")
    assert failed.code == 2
    assert "--reshard-after-forward" in failed.err
    assert "give yes, no or a number of ranks" in " ".join(failed.err.split())


def test_every_option_fills_its_field(client: Any, haversack_run: Run) -> None:
    haversack_run(
        *split(
            "estimate --state-bytes 4GiB,4GiB,8GiB --gpus 64 --fsdp --tp 2 --pp 2 --cp 2 --ep 2"
        ),
        *split("--sequence-parallel --dp-replicate 2 --prefetch-units 0 --accumulation 4"),
        *split("--reshard-after-forward no --gradient-as-bucket-view --reduce-type bf16"),
        *split("--precision bf16 --recompute full --kernel-profile hf-eager"),
        *split("--budget 60GiB --budget-kind device"),
    )
    (request,) = client.asked
    gib = 2**30
    assert request.state_bytes == StateBytes(
        parameter_bytes=4 * gib, gradient_bytes=4 * gib, optimizer_bytes=8 * gib
    )
    degrees = request.parallelism
    assert (degrees.tp, degrees.pp, degrees.cp, degrees.ep, degrees.dp_replicate) == (2, 2, 2, 2, 2)
    assert degrees.sequence_parallel
    assert degrees.prefetch_units == 0
    assert degrees.reshard_after_forward is False
    assert degrees.gradient_as_bucket_view
    assert request.training.reduce_type is NumberType.BF16
    assert degrees.sharding is Sharding.FSDP2
    assert request.training.accumulation == 4
    assert request.training.precision is Precision.BF16
    assert request.training.recompute is Recompute.FULL
    assert request.kernel_profile == "hf-eager"
    assert request.budget == Budget(bytes=60 * gib, kind=BytesKind.DEVICE)


def test_units_are_read_from_their_file(client: Any, haversack_run: Run, write: Write) -> None:
    path = write("units.json", '{"units": [{"name": "a", "parameter_count": 1000}]}')
    assert haversack_run("estimate", "--units", path, "--gpus", "4", "--zero", "3").code == 0
    assert client.asked[0].units == (Unit(name="a", parameter_count=1000),)


def test_variations_travel_in_the_same_call(client: Any, haversack_run: Run) -> None:
    haversack_run(
        *split("estimate --parameter-count 1000 --gpus 8 --zero 3"),
        *["--what-if", "zero=2 gpu-memory=40GiB", "--what-if", "fsdp,recompute=full,tp=2"],
    )
    (request,) = client.asked
    first, second = request.what_ifs
    assert first.name == "zero=2 gpu-memory=40GiB"
    assert first.parallelism.sharding is Sharding.ZERO_2
    assert first.device.memory_bytes == 40 * 2**30
    assert first.training is None
    assert second.parallelism.sharding is Sharding.FSDP2
    assert second.parallelism.tp == 2
    assert second.training.recompute is Recompute.FULL


@pytest.mark.parametrize("command", [estimate, plan])
def test_the_command_line_has_every_keyword_of_a_run(command: Any) -> None:
    named = {parameter.name for parameter in command.params}
    missing = keywords.RunOptions.__annotations__.keys() - named
    # Options spell the noun of finetuning in parts. A plan chooses what is recomputed, and states
    # have nothing to choose from.
    left_out = (
        {"recompute", "units", "parameter_count", "state_bytes"} if command is plan else set()
    )
    assert missing == left_out | {"finetuning"}


def test_a_command_asks_the_embedded_server_or_the_one_that_is_named(
    client: Any, haversack_run: Run
) -> None:
    line = ("estimate", "--parameter-count", "1000")
    haversack_run(*line)
    haversack_run(*line, "--server", "example.org:50051", "--timeout", "2.5")
    assert client.connections == [(None, ()), ("example.org:50051", ())]
    assert client.keywords == {"timeout": 2.5}


def test_json_is_the_message_with_its_defaults(client: Any, haversack_run: Run) -> None:
    client.estimated = Estimate(
        verdict=EstimateVerdict.FITS,
        steady_bytes=7 * 2**30,
        what_ifs=(WhatIfAnswer(name="zero=2", verdict=EstimateVerdict.TIGHT),),
    )
    done = haversack_run("estimate", "--parameter-count", "1000", "--json")
    answer = done.json
    assert answer["verdict"] == "ESTIMATE_VERDICT_FITS"
    assert answer["steady_bytes"] == str(7 * 2**30)  # 64-bit integers are strings in protobuf JSON
    assert answer["what_ifs"][0]["verdict"] == "ESTIMATE_VERDICT_TIGHT"
    assert answer["peak_phase"] == ""
    assert answer["terms"] == []
    assert "peak" not in answer
    assert done.err == ""


def test_a_trace_says_that_it_begins_but_not_beside_json(client: Any, haversack_run: Run) -> None:
    line = ("estimate", "--parameter-count", "1000", "--trace")
    assert haversack_run(*line).err.startswith("haversack: traces two steps on the CPU")
    assert haversack_run(*line, "--json").err == ""


def test_candidates_go_to_the_field_of_their_form(
    client: Any, haversack_run: Run, write: Write
) -> None:
    client.planned = Plan(status=PlanStatus.OPTIMAL, saved=(1, 2), total_gain=6)
    path = write("a.json", '{"size_bytes": [3, 2, 2], "gain": [5, 3, 3]}')
    mirror = write("b.json", '{"freed_bytes": [3], "added_ns": [5], "used_bytes": 9}')
    done = haversack_run("plan", "--candidates", path, "--budget", "4", "--json")
    assert done.json["saved"] == ["1", "2"]
    haversack_run(
        *("plan", "--candidates", mirror, "--budget", "4KiB", "--fit-expected"),
        *("--frontier-points", "3", "--state-limit", "10"),
    )
    first, second = client.asked
    assert first.candidates.size_bytes == (3, 2, 2)
    assert first.budget == Budget(bytes=4)
    assert second.recompute_candidates.used_bytes == 9
    assert second.budget == Budget(bytes=4096)
    assert second.fit_expected
    assert (second.frontier_points, second.state_limit) == (3, 10)


def test_verify_asks_for_a_job_and_prints_its_report(client: Any, haversack_run: Run) -> None:
    client.events = [
        VerifyEvent(job_id="j", queued=VerifyQueued(device="cpu", position=2)),
        VerifyEvent(job_id="j", running=VerifyRunning(device="cpu")),
        VerifyEvent(job_id="j", progress=VerifyProgress(stage="plain", completed=1, total=4)),
        VerifyEvent(job_id="j", report=VerifyReport(verdict=VerifyVerdict.EQUIVALENT)),
    ]
    done = haversack_run(
        *("verify", "--workload", "mypkg.models:build", "--args", '{"layers": 2}'),
        *("--allow", "mypkg.", "--allow", "other.", "--strict", "--waive", "buffers"),
        *("--waive", "input-gradients", "--seed", "7", "--device", "cuda:0", "--deadline", "1.5"),
        *("--job-id", "nightly", "--schedule", "two-steps", "--json", "--region", "layers.0"),
        *("--region", "layers.1", "--use-reentrant", "--no-preserve-rng-state", "--early-stop"),
        *("--determinism-check", "none", "--threads", "2", "--deterministic-algorithms"),
        *("--memory", "4GiB"),
    )
    assert done.code == 0
    assert done.json["verdict"] == "VERIFY_VERDICT_EQUIVALENT"
    assert done.err.splitlines() == [
        "haversack: job j waits for cpu, 2 before it",
        "haversack: job j runs on cpu",
        "haversack: plain done, 1 of 4",
    ]
    (request,) = client.asked
    assert request.workload.entry_point == "mypkg.models:build"
    assert request.workload.args_json == '{"layers": 2}'
    assert client.connections == [(None, ("mypkg.", "other."))]
    assert request.strict
    assert request.waivers == (Facet.BUFFERS, Facet.INPUT_GRADIENTS)
    assert (request.seed, request.device, request.job_id) == (7, "cuda:0", "nightly")
    assert request.limits.deadline_ns == 1_500_000_000
    assert request.schedule is VerifySchedule.TWO_STEPS
    assert (request.regions, request.use_reentrant) == (("layers.0", "layers.1"), True)
    assert (request.preserve_rng_state, request.early_stop) == (False, True)
    assert (request.determinism_check, request.threads) == ("none", 2)
    assert request.deterministic_algorithms
    assert request.limits.memory_bytes == 2**32


def test_verify_leaves_what_calls_say_where_nothing_else_is_asked(
    client: Any, haversack_run: Run
) -> None:
    client.events = [VerifyEvent(job_id="j", report=VerifyReport())]
    haversack_run("verify", "--workload", "mlp")
    (request,) = client.asked
    assert (request.preserve_rng_state, request.early_stop) == (None, None)
    assert request == VerifyRequest(workload=WorkloadReference(name="mlp"))


def test_an_interrupted_job_is_cancelled(client: Any, haversack_run: Run) -> None:
    client.events = [
        VerifyEvent(job_id="j", running=VerifyRunning(device="cpu")),
        KeyboardInterrupt(),
    ]
    assert haversack_run("verify", "--workload", "mlp").code == 130
    assert client.cancelled == ["j"]


def test_a_stream_without_a_report_is_a_failure(client: Any, haversack_run: Run) -> None:
    client.events = [InternalError("the events of the job ended without a report")]
    assert haversack_run("verify", "--workload", "mlp").code == 1
    client.events = []
    done = haversack_run("verify", "--workload", "mlp")
    assert done.code == 1
    assert "without a report" in done.err


def test_the_list_of_workloads(client: Any, haversack_run: Run) -> None:
    client.workloads = ListWorkloadsResponse(
        workloads=(
            WorkloadInfo(
                name="mlp",
                category="baseline",
                description="Two layers.",
                expected_verdict=VerifyVerdict.EQUIVALENT,
            ),
        )
    )
    assert haversack_run("verify", "--list", "--json").json["workloads"][0]["name"] == "mlp"
    done = haversack_run("verify", "--list")
    assert done.code == 0
    assert "mlp" in done.out
    assert "EQUIVALENT" in done.out


def test_the_version(haversack_run: Run) -> None:
    done = haversack_run("--version")
    assert (done.code, done.out) == (0, f"haversack {haversack.__version__}\n")


def test_text_that_standard_output_cannot_spell_is_no_error(
    client: Any, haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.estimated = Estimate(verdict=EstimateVerdict.FITS, reason="größer")
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    assert haversack_run("estimate", "--parameter-count", "1").code == 0
    plain.seek(0)
    assert "gr??er" in plain.read()
    plain.seek(0)
    plain.truncate()
    haversack_run("estimate", "--parameter-count", "1", "--json")
    plain.seek(0)
    assert json.loads(plain.read())["reason"] == "größer"
