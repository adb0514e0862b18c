"""Profiles of real steps: they measure what fakes say, but for the time, which is a clock's.

No test depends on how long anything takes.
"""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="steps of PyTorch are run")

import torch
from torch import Tensor, nn

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.plan import PlanRequest
from haversack.profile import Profile
from haversack.run import Budget
from haversack.torch import Workload, profile
from haversack.torch import runs as runs_module
from haversack_server.plan.answer import plan

ROWS, WIDTH, BLOCKS = 32, 16, 4


class Net(nn.Module):
    """Blocks with dropout, and one whose batch norm changes buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH)
            )
            for _ in range(BLOCKS)
        )
        self.layers.append(nn.BatchNorm1d(WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def workload_of() -> Workload:
    torch.manual_seed(0)
    model = Net()
    return Workload(
        model,
        args=(torch.randn(ROWS, WIDTH),),
        loss=lambda output: output.square().mean(),
        optimizer=torch.optim.AdamW(model.parameters()),
    )


def without_times(found: Profile) -> list[dict[str, tuple[int, ...]]]:
    """Give the bytes of every option of every block."""
    tables = [found.tables[block.table] for block in found.blocks]
    return [
        {
            option: tuple(row)
            for option, *row in zip(
                table.option,
                table.retained_bytes,
                table.forward_peak_bytes,
                table.backward_peak_bytes,
                strict=True,
            )
            if option in ("save", "recompute")
        }
        for table in tables
    ]


def test_a_real_step_needs_the_bytes_of_a_fake_one() -> None:
    workload = workload_of()
    real = profile(workload, device="cpu")
    fake = profile(workload)
    assert without_times(real) == without_times(fake)
    assert [each.name for each in real.blocks] == [each.name for each in fake.blocks]
    assert real.fingerprint == fake.fingerprint
    assert (real.basis, real.device) == (Basis.MEASURED, "cpu")
    assert not any("roofline" in each for each in real.not_profiled)
    answer = plan(PlanRequest(profile=real, budget=Budget(bytes=2**40)))
    assert answer.basis is Basis.MEASURED


def test_a_real_step_leaves_everything_as_it_was() -> None:
    workload = workload_of()
    model: Any = workload.model
    model.layers[0][0].weight.grad = torch.ones(WIDTH, WIDTH)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state = torch.get_rng_state()
    profile(workload, device="cpu")
    assert torch.equal(torch.get_rng_state(), state)
    after = model.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    gradients = [name for name, each in model.named_parameters() if each.grad is not None]
    assert gradients == ["layers.0.0.weight"]
    assert torch.equal(model.layers[0][0].weight.grad, torch.ones(WIDTH, WIDTH))
    assert all("forward" not in each.__dict__ for each in model.modules())


def test_extra_time_is_the_median_of_what_the_clock_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iter(range(0, 10**9, 7))
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(reads))
    monkeypatch.setattr(runs_module, "_TIMED", 1)
    found = profile(workload_of(), device="cpu")
    for block in found.blocks:
        table = found.tables[block.table]
        times = dict(zip(table.option, table.extra_ns, strict=True))
        assert times.pop("save") == 0
        # The clock goes on by 7 ns from the begin of a recomputation to its end.
        assert set(times.values()) <= {7}
        assert bool(times) == (block.name.startswith("layers.") and block.name != "layers.4")


def test_a_model_elsewhere_is_refused() -> None:
    workload = workload_of()
    with torch.device("meta"):
        elsewhere = replace(workload, model=Net(), optimizer=None)
    with pytest.raises(InvalidRequestError, match="the model is on meta") as caught:
        profile(elsewhere, device="cpu")
    assert caught.value.violations[0].field == "device"
