"""The command line with the real server inside the process, as people type it."""

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.consoles import console_blocks, follow
from tests.integration.programs import started

from haversack.cli import entry
from haversack.cli.render import page

ROOT = Path(__file__).parents[2]
CONSOLES = console_blocks(ROOT / "docs" / "cli.md")
PATIENCE_S = 60  # how long a process may take; never how long it does take

LLAMA = "--model examples/llama3_8b.json --gpus 8 --gpu-memory 80GiB --zero 3 --seq 8192"


class Typed:
    """Runs a line as if it were typed in the root of the repository."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, line: str) -> tuple[int, str, str]:
        """Give exit code, standard output and standard error."""
        code = entry.run(shlex.split(line))
        out, err = self._capfd.readouterr()
        return code, out, err

    def json(self, line: str) -> tuple[int, Any]:
        """Give the exit code and the one object on standard output."""
        code, out, _ = self(f"{line} --json")
        return code, json.loads(out)


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "HAVERSACK_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return Typed(capfd)


def test_an_estimate_of_llama_3_8b(typed: Typed) -> None:
    code, answer = typed.json(f"estimate {LLAMA} --microbatch 1")
    assert code == {"FITS": 0, "TIGHT": 3, "DOES_NOT_FIT": 4}[answer["verdict"][17:]]
    # 8,030,261,248 parameters at 2 + 2 + 12 bytes over 8 ranks.
    assert int(answer["steady_bytes"]) == pytest.approx(8_030_261_248 * 16 / 8, rel=1e-4)
    inside = [term for term in answer["terms"] if term["category"] != "TERM_CATEGORY_OUTSIDE"]
    peak = int(answer["peak"]["allocated"]["expected_bytes"])
    assert sum(int(term["bytes"]) for term in inside) == peak
    assert answer["assumptions"]
    assert answer["not_modelled"]


def test_variations_have_a_list_of_their_own(typed: Typed) -> None:
    _, answer = typed.json(
        f"estimate {LLAMA} --microbatch 1 --what-if recompute=full --what-if zero=2"
    )
    names = [each["name"] for each in answer["what_ifs"]]
    assert names == ["recompute=full", "zero=2"]
    assert int(answer["what_ifs"][0]["delta_bytes"]) < 0 < int(answer["what_ifs"][1]["delta_bytes"])


def test_units_ask_for_no_verdict_and_have_gather_windows(typed: Typed) -> None:
    code, answer = typed.json("estimate --units examples/units.json --gpus 4 --zero 3")
    assert code == 0
    assert answer["verdict"] == "ESTIMATE_VERDICT_UNSPECIFIED"
    moments = [moment["name"] for moment in answer["timeline"]]
    assert moments.index("forward a") < moments.index("forward b") < moments.index("backward b")
    _, text, _ = typed("estimate --units examples/units.json --gpus 4 --zero 3")
    assert "idealised, not a measurement" in text


@pytest.mark.parametrize(("stage", "expected_gib"), [(1, 10), (2, 7), (3, 4)])
def test_state_bytes_are_the_steady_part_and_say_so(
    typed: Typed, stage: int, expected_gib: int
) -> None:
    line = f"estimate --state-bytes 4GiB,4GiB,8GiB --gpus 4 --zero {stage}"
    code, answer = typed.json(line)
    assert code == 0
    assert int(answer["steady_bytes"]) == expected_gib * 2**30
    assert f"{expected_gib}.00 GiB of model states on each rank, not a peak" in typed(line)[1]


def test_a_plan_of_llama_3_8b_recomputes_some_blocks(typed: Typed) -> None:
    code, answer = typed.json(f"plan {LLAMA} --microbatch 2")
    assert code == 0
    assert answer["status"] == "PLAN_STATUS_OPTIMAL"
    options = {action["option"] for action in answer["actions"]}
    assert options == {"save", "recompute"}
    allowed = int(answer["budget"]["allocated_bytes"])
    assert int(answer["predicted_peak_bytes"]) <= allowed
    text = typed(f"plan {LLAMA} --microbatch 2")[1]
    assert re.search(r"recompute +\d+  model\.layers\.\d+-\d+", text)


def test_a_plan_that_cannot_be_names_the_logits_at_its_floor(typed: Typed) -> None:
    code, answer = typed.json(f"plan {LLAMA} --microbatch 4")
    if code == 0:
        assert int(answer["predicted_peak_bytes"]) <= int(answer["budget"]["allocated_bytes"])
        return
    assert (code, answer["status"]) == (4, "PLAN_STATUS_INFEASIBLE")
    assert int(answer["floor_bytes"]) > int(answer["budget"]["allocated_bytes"])
    assert any("logits" in term for term in answer["floor_at"]["largest_terms"])


def test_a_plan_of_candidates(typed: Typed) -> None:
    code, answer = typed.json("plan --candidates examples/candidates.json --budget 4")
    assert code == 0
    assert (answer["saved"], answer["total_gain"]) == (["1", "2"], "6")
    assert "predicted_peak_bytes" not in answer


@pytest.mark.parametrize(
    ("budget", "code", "words"),
    [
        # 20 bytes are used. Freeing 8 costs 9 at least: norm (3 for 2) and logits (5 for 7).
        (12, 0, ("recompute    2-3 (norm, logits)", "9 ns")),
        # 18 bytes can be freed at all.
        (1, 4, ("INFEASIBLE", "2 B, present whatever is chosen")),
    ],
)
def test_a_plan_of_the_mirror_form(
    typed: Typed, budget: int, code: int, words: tuple[str, ...]
) -> None:
    done, text, _ = typed(f"plan --candidates examples/recompute_candidates.json --budget {budget}")
    assert done == code
    for word in words:
        assert word in text


LLAMA_CONFIG = (ROOT / "examples" / "llama3_8b.json").read_text()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (LLAMA_CONFIG.replace('"llama"', '"lama"'), "", ("model_type", "'lama'", "llama")),
        (LLAMA_CONFIG, "--gpus 12 --tp 3", ("parallelism.tp", "3", "32", "--tp")),
        (LLAMA_CONFIG[:60], "", ("documents[0].text", "line", "column")),
        ('{"model_type": "llama", "model_type": "gpt2"}', "", ("model_type", "twice")),
        ('{"model_type": "llama", "hidden_size": NaN}', "", ("documents[0]", "NaN")),
        ("[]", "", ("documents[0].text", "array")),
        (LLAMA_CONFIG.replace("4096", "-4096"), "", ("hidden_size", "-4096")),
        (LLAMA_CONFIG.replace("4096", "true"), "", ("hidden_size",)),
        (LLAMA_CONFIG, "--kernel-profile none", ("kernel_profile", "hf-eager")),
    ],
)
def test_what_the_server_refuses_is_one_sentence_with_the_field_and_the_file(
    typed: Typed, tmp_path: Path, text: str, options: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    code, out, err = typed(f"estimate --model {path} --seq 128 --microbatch 1 {options}")
    assert (code, out) == (2, "")
    assert err.startswith("haversack: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    if "documents" in err:
        assert f"--model {path}" in err


def test_gains_above_63_bits_are_invalid_not_a_fault(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "candidates.json"
    path.write_text(f'{{"size_bytes": [1, 1], "gain": [{2**63 - 1}, 1]}}')
    assert typed.json(f"plan --candidates {path} --budget 1")[1]["total_gain"] == str(2**63 - 1)
    code, _, err = typed(f"plan --candidates {path} --budget 2")
    assert code == 2
    assert "candidates.gain" in err
    assert "2^63-1" in err


def test_no_server_at_the_address_is_a_failure(typed: Typed) -> None:
    code, out, err = typed("estimate --parameter-count 1 --server localhost:1 --timeout 2")
    assert (code, out) == (1, "")
    assert err.startswith("haversack: no server answers at localhost:1")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("line", "shown"), CONSOLES, ids=[line for line, _ in CONSOLES])
def test_the_page_of_the_command_line_shows_what_is_printed(
    typed: Typed, line: str, shown: list[str]
) -> None:
    _, out, err = typed(line)
    assert follow(shown, (out or err).splitlines()), out or err


def test_the_page_of_the_command_line_shows_enough() -> None:
    assert len(CONSOLES) >= 4
    assert page.NARROWEST <= 80 <= page.WIDEST


# Processes of their own, about a second each.


def test_a_pipe_that_closes_early_is_quiet() -> None:
    with started(*shlex.split(f"estimate {LLAMA} --microbatch 1 --verbose")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) in (0, 3, 4)


@pytest.fixture
def address() -> Iterator[str]:
    """A server that `haversack serve` became."""
    with started("serve", "--listen", "127.0.0.1:0", "--metrics-port", "0") as process:
        assert process.stderr is not None
        told = ""
        while (found := re.search(r"serves on (\S+),", told)) is None:
            line = process.stderr.readline()  # a first start says before that it compiles
            assert line, told
            told += line
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert "stopped" in process.stderr.read()


def test_serve_answers_a_plan_until_it_is_told_to_stop(typed: Typed, address: str) -> None:
    code, answer = typed.json(
        f"plan --server {address} --candidates examples/candidates.json --budget 4"
    )
    assert code == 0
    assert answer["saved"] == ["1", "2"]
