"""Every bad input is one sentence on standard error that names the field, and exit code 2."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Write = Callable[[str, str], str]

LONG = "x" * 5000


def assert_refused(done: Any, *words: str) -> None:
    """Check an answer to bad input."""
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("haversack: ")
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"size_bytes": [3, 2], "gain": [5]}', ("candidates", "size_bytes has 2", "gain has 1")),
        ('{"size_bytes": [3, 0], "gain": [5, 1]}', ("candidates.size_bytes[1]", "1 or more")),
        ('{"size_bytes": [3, -2], "gain": [5, 1]}', ("candidates.size_bytes[1]", "-2")),
        ('{"size_bytes": [3, 2], "gain": [5, -1]}', ("candidates.gain[1]", "0 or more")),
        ('{"size_bytes": [true], "gain": [5]}', ("candidates.size_bytes[0]", "whole number")),
        ('{"size_bytes": [3.0], "gain": [5]}', ("candidates.size_bytes[0]", "whole number")),
        ('{"size_bytes": [3], "gain": [NaN]}', ("candidates", "NaN", "finite")),
        ('{"size_bytes": [3], "gain": [Infinity]}', ("candidates", "Infinity", "finite")),
        ('{"size_bytes": ["3"], "gain": [5]}', ("candidates.size_bytes[0]", "'3'")),
        ('{"size_bytes": 3, "gain": [5]}', ("candidates.size_bytes", "not a list")),
        ('{"size_bytes": [3]}', ("candidates.gain", "missing")),
        ('{"size_bytes": [3], "gain": [5], "names": [1]}', ("candidates.names[0]", "string")),
        ('{"size_bytes": [3], "gain": [5], "name": []}', ("candidates.name", "unknown key")),
        ('{"size_bytes": [3], "gain": [5], "gain": [6]}', ("'gain'", "twice")),
        ('{"size_bytes": [3], "gain": [5], "fixed_bytes": -1}', ("candidates.fixed_bytes", "-1")),
        ('{"size_bytes": [3],\n "gain": [5}', ("not JSON", "line 2, column 12")),
        ("[3, 2]", ("a JSON array", "size_bytes")),
        ("", ("not JSON", "line 1, column 1")),
        ("1" * 5000, ("thousands of digits",)),
        ('{"freed_bytes": [3]}', ("recompute_candidates.added_ns", "missing")),
        ('{"freed_bytes": [0], "added_ns": [1]}', ("recompute_candidates.freed_bytes[0]",)),
        (
            '{"freed_bytes": [3], "added_ns": [1], "used_bytes": 2}',
            ("recompute_candidates.used_bytes", "2"),
        ),
    ],
)
def test_a_wrong_file_of_candidates(
    client: Any, haversack_run: Run, write: Write, text: str, words: tuple[str, ...]
) -> None:
    path = write("candidates.json", text)
    assert_refused(
        haversack_run("plan", "--candidates", path, "--budget", "4"), *words, "--candidates"
    )
    assert client.asked == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"units": []}', ("units", "empty")),
        ('{"units": {}}', ("units", "no list of units")),
        ('{"unit": []}', ("units", "unknown key 'unit'")),
        ('{"units": [{"name": "a"}]}', ("units[0].parameter_count", "missing")),
        ('{"units": [{"parameter_count": 1.5}]}', ("units[0].parameter_count", "whole number")),
        ('{"units": [{"parameter_count": -1}]}', ("units[0].parameter_count", "-1")),
        ('{"units": [{"name": 1, "parameter_count": 1}]}', ("units[0].name", "string")),
        ('{"units": [5]}', ("units[0]", "not an object")),
        ('{"units": [{"parameter_count": 1, "params": 1}]}', ("units[0].params", "unknown key")),
    ],
)
def test_a_wrong_file_of_units(
    client: Any, haversack_run: Run, write: Write, text: str, words: tuple[str, ...]
) -> None:
    path = write("units.json", text)
    assert_refused(haversack_run("estimate", "--units", path), *words, "--units")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0"], ("parallelism.world_size", "1 or more", "--gpus")),
        (["--gpus", "-8"], ("parallelism.world_size", "-8", "--gpus")),
        (["--gpus", "1.5"], ("parallelism.world_size", "'1.5'", "whole number", "--gpus")),
        (["--gpus", "8", "--tp", "3"], ("parallelism.world_size", "tp 3")),
        (["--gpus", "9" * 5000], ("parallelism.world_size", "whole number")),
        (["--zero", "4"], ("parallelism.sharding", "0, 1, 2 or 3", "--zero")),
        (["--zero", "3", "--fsdp"], ("parallelism.sharding", "zero 3 and fsdp")),
        (["--gpu-memory", "80 GBit"], ("device.memory_bytes", "80GiB", "--gpu-memory")),
        (["--gpu-memory", "-1"], ("device.memory_bytes", "'-1'")),
        (["--gpu-memory", "nan"], ("device.memory_bytes", "'nan'")),
        (["--gpu-memory", "9" * 5000], ("device.memory_bytes", "too long")),
        (["--gpu-memory", "0"], ("device.memory_bytes", "1 or more")),
        (["--seq", "0"], ("training.seq", "--seq")),
        (["--seq", "true"], ("training.seq", "'true'")),
        (["--microbatch", "0"], ("training.microbatch", "--microbatch")),
        (["--precision", "fp8"], ("training.precision", "'fp8'", "bf16-fp32-master")),
        (["--optimizer", "adam"], ("training.optimizer", "adamw-foreach", "--optimizer")),
        (["--attention", "x"], ("training.attention", "flash")),
        (["--recompute", "some"], ("training.recompute", "full")),
        (["--budget", "-1"], ("budget.bytes", "'-1'", "--budget")),
        (["--budget-kind", "device"], ("budget.kind", "budget", "--budget-kind")),
        (["--budget", "1", "--budget-kind", "x"], ("budget.kind", "allocated, device")),
        (["--timeout", "0"], ("timeout", "seconds", "--timeout")),
        (["--timeout", "nan"], ("timeout", "'nan'")),
        (["--server", "localhost"], ("server", "HOST:PORT", "--server")),
        (["--server", "localhost:65536"], ("server", "65536", "65535")),
        (["--server", "http://localhost:50051/"], ("web address", "gRPC", "'localhost:50051'")),
        (["--server", "grpc://x:1"], ("web address", "'x:1'", "--server")),
        (["--what-if", " "], ("what_ifs", "changes nothing", "--what-if")),
        (["--what-if", "zeros=2"], ("what_ifs[0].zeros", "unknown key")),
        (["--what-if", "zero=5"], ("what_ifs[0].parallelism.sharding", "0, 1, 2 or 3")),
        (["--what-if", "zero=two"], ("what_ifs[0].zero", "'two'", "--what-if")),
        (["--what-if", "zero=1", "--what-if", "tp=x"], ("what_ifs[1].tp", "'x'", "--what-if")),
        (["--what-if", "zero=1", "--what-if", ","], ("what_ifs[1]", "changes nothing")),
        (["--what-if", "tp=2 tp=4"], ("what_ifs", "twice")),
        (["--units", "none.json"], ("units", "none.json: no such file or directory", "--units")),
        (["--model", "none.json"], ("documents", "one subject")),
        (["--gpu", "8"], ("No such option", "haversack estimate --help")),
        (["--gpus"], ("--gpus", "requires an argument")),
        (["extra"], ("unexpected extra argument", "extra")),
    ],
)
def test_a_wrong_option_of_estimate(
    client: Any, haversack_run: Run, arguments: list[str], words: tuple[str, ...]
) -> None:
    if arguments[0] == "--model":
        words = ("documents[0].text", "none.json: no such file or directory", "config.json")
    assert_refused(haversack_run("estimate", "--parameter-count", "1000", *arguments), *words)
    assert client.asked == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpus", LONG],
        ["--precision", LONG],
        ["--gpu-memory", LONG],
        ["--timeout", LONG],
        ["--server", LONG],
        ["--what-if", f"zero={LONG}"],
        ["--what-if", LONG],
        ["--what-if", f"{LONG}=1"],
        ["--units", LONG],
        ["--model", LONG],
    ],
)
def test_a_long_input_is_not_repeated_in_full(
    client: Any, haversack_run: Run, arguments: list[str]
) -> None:
    done = haversack_run("estimate", "--parameter-count", "1000", *arguments)
    assert_refused(done, arguments[0])
    assert len(done.err) < 600


@pytest.mark.parametrize("arguments", [["--candidates", "", "--budget", "4"], ["--model", ""]])
def test_an_empty_path_is_said_to_be_empty(
    client: Any, haversack_run: Run, arguments: list[str]
) -> None:
    assert_refused(haversack_run("plan", *arguments), "is empty; give", arguments[0])


def test_no_subject_names_the_options_that_give_one(client: Any, haversack_run: Run) -> None:
    done = haversack_run("estimate", "--gpus", "8")
    assert_refused(done, "--model", "--units", "--parameter-count", "--state-bytes")
    assert_refused(haversack_run("plan", "--gpus", "8"), "--model", "--candidates")


def test_two_subjects_name_the_second(client: Any, haversack_run: Run) -> None:
    done = haversack_run("estimate", "--parameter-count", "1", "--state-bytes", "1,1,1")
    assert_refused(done, "one subject", "state_bytes and parameter_count")


@pytest.mark.parametrize("states", ["4GiB,4GiB", "1,2,3,4", "1,,3", "a,b,c"])
def test_state_bytes_are_three(client: Any, haversack_run: Run, states: str) -> None:
    assert_refused(
        haversack_run("estimate", "--state-bytes", states), "state_bytes", "--state-bytes"
    )


def test_candidates_need_a_budget(client: Any, haversack_run: Run, write: Write) -> None:
    path = write("candidates.json", '{"size_bytes": [3], "gain": [5]}')
    assert_refused(haversack_run("plan", "--candidates", path), "budget", "--budget")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"\xff\xfe\x00", ("is not text",)),
        ("config.json", b" " * (2**20 + 1), ("larger than 1.00 MiB",)),
        ("model.safetensors", b"\x93\x00\xff", ("is not text", "config.json")),
    ],
)
def test_a_file_that_is_no_model(
    client: Any,
    haversack_run: Run,
    tmp_path: Path,
    name: str,
    content: bytes,
    words: tuple[str, ...],
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(haversack_run("estimate", "--model", str(path)), "documents[0].text", *words)


def test_a_folder_without_a_config_says_what_it_looked_for(
    client: Any, haversack_run: Run, tmp_path: Path
) -> None:
    assert_refused(haversack_run("estimate", "--model", str(tmp_path)), f"{tmp_path}/config.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ("workload", "--list", "--workload")),
        (["--workload", ""], ("workload",)),
        (["--workload", "a.b:"], ("workload.entry_point", "package.module:factory", "--workload")),
        (["--workload", "mlp", "--args", "{"], ("workload.args_json", "not JSON", "--args")),
        (
            ["--workload", "mlp", "--args", "[1]"],
            ("workload.args_json", "a JSON array", '{"layers"'),
        ),
        (["--workload", "mlp", "--args", '{"a": NaN}'], ("workload.args_json", "NaN")),
        (["--workload", "mlp", "--args", '{"a": 1, "a": 2}'], ("workload.args_json", "twice")),
        (["--workload", "mlp", "--waive", "colour"], ("waivers[0]", "buffers", "--waive")),
        (["--workload", "mlp", "--seed", "-1"], ("seed", "-1", "--seed")),
        (["--workload", "mlp", "--seed", str(2**32)], ("seed", "--seed")),
        (["--workload", "mlp", "--device", "tpu"], ("device", "'tpu'", "--device")),
        (["--workload", "mlp", "--deadline", "-5"], ("limits.deadline_ns", "--deadline")),
        (["--workload", "mlp", "--job-id", "a b"], ("job_id", "--job-id")),
        (["--workload", "mlp", "--threads", "0"], ("threads", "--threads")),
        (["--workload", "mlp", "--region", ""], ("regions", "empty name", "--region")),
        (
            ["--workload", "mlp", "--determinism-check", "all"],
            ("determinism_check", "use default or none", "--determinism-check"),
        ),
        (["--workload", "mlp", "--memory", "much"], ("limits.memory_bytes", "--memory")),
        (
            ["--workload", "mlp", "--resume", "0:4"],
            ("world.size", "1 or more", "--resume"),
        ),
        (
            ["--workload", "a.b:c", "--allow", "a.", "--server", "localhost:1"],
            ("allow", "server's own configuration decides", "--allow"),
        ),
    ],
)
def test_a_wrong_option_of_verify(
    client: Any, haversack_run: Run, arguments: list[str], words: tuple[str, ...]
) -> None:
    assert_refused(haversack_run("verify", *arguments), *words)
    assert client.asked == []


def test_a_field_that_the_server_refuses_names_the_file(
    client: Any, haversack_run: Run, write: Write
) -> None:
    from haversack.errors import InvalidRequestError

    path = write("config.json", '{"model_type": "unheard"}')
    client.estimated = InvalidRequestError(
        "'unheard' is not known; use llama", field="documents[0].model_type"
    )
    done = haversack_run("estimate", "--model", path)
    assert_refused(done, "documents[0].model_type: 'unheard' is not known", f"(--model {path})")


def test_each_fault_has_a_line_with_its_option(client: Any, haversack_run: Run) -> None:
    done = haversack_run("estimate", "--parameter-count", "1000", "--gpus", "0", "--tp", "-1")
    first, second = done.err.splitlines()
    assert first.startswith("haversack: parallelism.world_size: ")
    assert first.endswith("(--gpus)")
    assert second.startswith("haversack: parallelism.tp: ")
    assert second.endswith("(--tp)")
    assert client.asked == []


def test_of_many_faults_five_are_told(client: Any, haversack_run: Run) -> None:
    from haversack.errors import InvalidRequestError, Violation

    faults = [Violation("training.seq", f"fault {number}") for number in range(7)]
    client.estimated = InvalidRequestError(violations=faults, total=3000)
    done = haversack_run("estimate", "--parameter-count", "1000")
    assert done.err.splitlines() == [
        *(f"haversack: training.seq: fault {number} (--seq)" for number in range(5)),
        "haversack: and 2995 more",
    ]


def test_no_command_is_invalid_and_shows_the_help_on_standard_error(haversack_run: Run) -> None:
    done = haversack_run()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def test_an_unknown_command(haversack_run: Run) -> None:
    assert_refused(haversack_run("estimat"), "No such command 'estimat'")
