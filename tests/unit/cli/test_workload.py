"""Plans and profiles of code on the command line: what is asked, and what is shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.cli.samples import GIB, PLAN, PLAN_REQUEST, drawn

from haversack import read_plan, read_profile
from haversack.basis import Basis
from haversack.cli.render.plan import draw_plan
from haversack.cli.render.profile import draw_profile
from haversack.cli.render.shared import option_words
from haversack.parallelism import Parallelism
from haversack.plan import Certificate, CertifiedPhase, MomentPeak, Plan, PlanStatus
from haversack.profile import OptionTable, Profile, ProfileBlock
from haversack.run import Budget, WorkloadReference
from haversack.training import Precision

Run = Callable[..., Any]
CODE = ["--workload", "pkg.models:build", "--args", '{"layers": 2}', "--allow", "pkg."]
TABLE = OptionTable(
    option=("save", "recompute", "selective aten.mm.default:0,2 aten.bmm.default:1"),
    retained_bytes=(4 * GIB, GIB, 2 * GIB),
    forward_peak_bytes=(5 * GIB, 3 * GIB, 3 * GIB),
    backward_peak_bytes=(6 * GIB, 6 * GIB, 6 * GIB),
    extra_ns=(0, 2_000_000, 1_000_000),
)
PROFILE = Profile(
    device="cpu",
    blocks=tuple(
        ProfileBlock(name=f"layers.{i}", table=0, parameter_bytes=GIB, fingerprint="f")
        for i in range(3)
    ),
    tables=(TABLE,),
    optimizer_state_bytes=6 * GIB,
    not_profiled=("workspaces of kernels",),
)
CERTIFICATE = Certificate(
    basis=Basis.SIMULATED,
    observed_peak_bytes=58 * GIB,
    holds=True,
    phases=(CertifiedPhase(phase="backward", predicted_bytes=59 * GIB, observed_bytes=58 * GIB),),
    method="the whole step under fake tensors",
)


def test_a_plan_of_code_asks_for_it_by_its_entry_point(
    client: Any, haversack_run: Run, tmp_path: Path
) -> None:
    client.planned = Plan(status=PlanStatus.OPTIMAL, certificate=CERTIFICATE, profile=PROFILE)
    written = tmp_path / "plan.json"
    done = haversack_run("plan", *CODE, "--budget", "60GiB", "-o", str(written))
    assert done.code == 0, done.err
    (request,) = client.asked
    reference = WorkloadReference(entry_point="pkg.models:build", args_json='{"layers": 2}')
    assert request.workload == reference
    assert request.budget == Budget(bytes=60 * GIB)
    assert client.connections == [(None, ("pkg.",))]
    assert client.keywords == {}  # the client's own deadline has room for a worker's
    assert read_plan(written) == client.planned
    assert read_profile(written) == PROFILE


def test_a_step_above_its_budget_is_no_plan_that_holds(client: Any, haversack_run: Run) -> None:
    client.planned = Plan(status=PlanStatus.OPTIMAL, certificate=replace(CERTIFICATE, holds=False))
    assert haversack_run("plan", *CODE, "--budget", "1GiB").code == 4


def test_prefixes_are_for_a_server_of_one_s_own(client: Any, haversack_run: Run) -> None:
    for command in ("plan", "profile"):
        done = haversack_run(command, *CODE, "--server", "localhost:1")
        assert done.code == 2
        assert done.err.startswith("haversack: allow: leave it out with --server")
    assert not client.asked


def test_a_profile_is_written_and_planned_with(
    client: Any, haversack_run: Run, tmp_path: Path
) -> None:
    client.planned = Plan(profile=PROFILE)
    written = str(tmp_path / "profile.json")
    done = haversack_run("profile", *CODE, "-o", written)
    assert done.code == 0, done.err
    assert done.out.startswith("PROFILED  3 blocks on cpu, written to")
    assert client.asked[0].budget is None
    assert read_profile(written) == PROFILE
    assert haversack_run("plan", "--profile", written, "--budget", "1GiB").code == 5
    assert client.asked[1].profile == PROFILE


def test_a_profile_is_asked_for_in_mixed_precision_and_says_so(
    client: Any, haversack_run: Run
) -> None:
    mixed = Precision.FP32_BF16_COMPUTE
    client.planned = Plan(profile=replace(PROFILE, precision=mixed))
    done = haversack_run("profile", *CODE, "--precision", "fp32-bf16-compute")
    assert done.code == 0, done.err
    assert done.out.startswith("PROFILED  3 blocks on cpu in fp32-bf16-compute")
    assert client.asked[0].training.precision is mixed
    assert (client.asked[0].budget, client.asked[0].parallelism) == (None, Parallelism())
    done = haversack_run("profile", *CODE, "--precision", "half")
    assert done.code == 2
    assert "use one of bf16-fp32-master, fp32-bf16-compute" in done.err
    assert done.err.endswith("(--precision)\n")


def test_a_file_that_is_no_profile_says_what_would_do(
    client: Any, haversack_run: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    for text, wrong in (
        ("{}", "is no profile; give a file that `haversack profile -o` wrote"),
        ('{"status": "PLAN_STATUS_OPTIMAL", "actions": []}', "is a plan without a profile"),
        ('{"blocks": 3}', "it is no profile:"),
        ("[]", "the document is a JSON array"),
    ):
        other.write_text(text)
        done = haversack_run("plan", "--profile", str(other), "--budget", "1GiB")
        assert done.code == 2
        assert done.err.startswith("haversack: profile: ")
        assert wrong in done.err
        assert done.err.rstrip().endswith("(--profile)")


def test_a_profile_that_cannot_be_written_names_its_option(
    client: Any, haversack_run: Run, tmp_path: Path
) -> None:
    done = haversack_run("profile", "--workload", "mlp", "-o", str(tmp_path / "profile.json"))
    assert (done.code, done.err) == (
        1,
        "haversack: the server answered no profile; ask one of this version\n",
    )
    client.asked.clear()
    for command in (("profile",), ("plan", "--budget", "1GiB")):
        for path, wrong in ((str(tmp_path / "a" / "b"), "cannot be written"), ("", "is empty")):
            done = haversack_run(*command, "--workload", "mlp", "-o", path)
            assert done.code == 2
            assert wrong in done.err
            assert done.err.endswith("give a file in a folder of yours (--output)\n")
    assert not client.asked  # nothing is profiled for a file that cannot be


def test_a_measured_plan_is_made_again(client: Any, haversack_run: Run, tmp_path: Path) -> None:
    moment = MomentPeak(phase="backward", block="layers.0", peak_bytes=58 * GIB)
    first = Plan(status=PlanStatus.OPTIMAL, profile=PROFILE, moments=(moment,))
    client.planned, path = first, str(tmp_path / "plan.json")
    haversack_run("plan", *CODE, "--budget", "60GiB", "-o", path)
    again = ("plan", "--profile", path, "--budget", "60GiB", "--measured")
    assert haversack_run(*again, "backward=59GiB").code == 0
    assert client.asked[1].profile.workspace_bytes == GIB
    done = haversack_run(*again, "init=59GiB")
    assert (done.code, done.err.endswith("give backward, or leave it out (--measured)\n")) == (
        2,
        True,
    )


def test_blocks_are_named_with_commas(client: Any, haversack_run: Run) -> None:
    client.planned = Plan(status=PlanStatus.OPTIMAL, profile=PROFILE)
    haversack_run("plan", *CODE, "--blocks", "layers,encoder.layer", "--budget", "1GiB")
    haversack_run("profile", *CODE, "--blocks", "head")
    assert [request.blocks for request in client.asked] == [("layers", "encoder.layer"), ("head",)]
    done = haversack_run("plan", *CODE, "--blocks", "layers,", "--budget", "1GiB")
    assert (done.code, done.err.endswith("give such as layers,head (--blocks)\n")) == (2, True)
    done = haversack_run("plan", "--profile", "p.json", "--blocks", "layers", "--budget", "1GiB")
    assert done.code == 2
    done = haversack_run("plan", "--budget", "1GiB")
    assert "--profile, --workload)" in done.err


def test_a_profile_groups_blocks_that_cost_the_same() -> None:
    text = drawn(draw_profile, PROFILE, None, False)
    assert text.startswith("PROFILED  3 blocks on cpu\n")
    assert "layers.0-2  save" in text
    assert "selective, 3 results saved" in text
    assert "optimizer   6.00 GiB" in text
    assert "workspaces of kernels" in drawn(draw_profile, PROFILE, None, True)


def test_a_policy_is_told_by_how_much_it_saves() -> None:
    assert option_words("selective aten.mm.default:4") == "selective, 1 result saved"
    cut = "selective aten.mm.default:0,2 aten.gelu.default:0 without aten.add.Tensor:0,1"
    assert option_words(cut) == "selective, 3 results saved, 2 left out"
    assert option_words("recompute") == "recompute"


def test_a_certificate_has_each_phase_beside_its_prediction() -> None:
    found = replace(CERTIFICATE, findings=("the step: 58.00 GiB when executed",), replanned=True)
    text = drawn(draw_plan, PLAN_REQUEST, replace(PLAN, certificate=found), False)
    assert "backward  59.00 GiB  58.00 GiB  98.3%" in text
    assert "HOLDS  the executed peak is 58.00 GiB" in text
    assert "planned anew after a first step" in text
    assert "-  the step: 58.00 GiB when executed" in text
    over = drawn(
        draw_plan, PLAN_REQUEST, replace(PLAN, certificate=replace(found, holds=False)), False
    )
    assert "DOES NOT HOLD" in over
