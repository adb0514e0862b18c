"""Whole steps of planned nets under fake tensors, against a real step under a tracker of storages.

The tracker is the tests' own; predictions come from the planner.
"""

import gc
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are stepped")

import torch
from tests.integration.live_storages import LiveStorages
from torch import Tensor, nn

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.plan import BudgetConversion, MomentPeak, Plan, PlanRequest
from haversack.profile import Profile
from haversack.run import BlockAction, Budget, Optimizer, Training
from haversack.torch import Workload, apply, certify, profile
from haversack.torch.optimizers import storage_bytes, with_optimizer
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan

ROWS, WIDTH, BLOCKS = 64, 16, 4
OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "foreach": lambda given: torch.optim.AdamW(given, foreach=True),
    "momentum": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9),
}


class Net(nn.Module):
    """Blocks with dropout, a buffer, and a weight that the end of the chain shares."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(WIDTH))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden @ self.head.weight
        for layer in self.layers:
            hidden = hidden + nn.functional.dropout(layer(hidden), 0.1, self.training)
        result: Tensor = self.head(hidden * self.scale)
        return result


@cache
def profile_of_no_optimizer() -> Profile:
    return profile(workload_of(None))


def workload_of(make: Any = torch.optim.AdamW) -> Workload:
    torch.manual_seed(0)
    model = Net()
    given = torch.randn(ROWS, WIDTH)
    optimizer = make(model.parameters()) if make else None
    return Workload(model, args=(given,), loss=lambda output: output.square().mean(),
                    optimizer=optimizer)  # fmt: skip


@cache
def profiled() -> tuple[Workload, Profile]:
    """A workload with AdamW, and its profile; nothing that is done with them changes them."""
    workload = workload_of()
    return workload, profile(workload)


def planned(budget_bytes: int = 2**40, **settings: Any) -> Plan:
    return plan(
        PlanRequest(
            profile=profiled()[1],
            budget=Budget(bytes=budget_bytes),
            training=Training(**settings),
            frontier_points=0,
        )
    )


def actions(options: Mapping[str, str], segment: Collection[str] = ()) -> Plan:
    rows = [
        BlockAction(block=name, option=option, segment=int(name in segment))
        for name, option in options.items()
    ]
    return Plan(actions=tuple(rows))


def executed_peak(workload: Workload, applied: Plan, microbatches: int) -> int:
    """Run three real steps with the plan; give the highest live bytes of the last."""
    model: Any = workload.model
    optimizer: Any = workload.optimizer

    def step() -> None:
        for _ in range(microbatches):
            output = model(*workload.args)
            loss = workload.loss(output)  # type: ignore[misc] # it has one
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    with apply(model, applied):
        step()
        known = [*model.parameters(), *model.buffers(), *workload.args]
        known += [each for row in optimizer.state.values() for each in row.values()]
        gc.collect()
        tracker: Any = LiveStorages(known, states=True)
        with tracker:
            step()
    peak: int = tracker.peak_bytes + storage_bytes(known)
    return peak


@pytest.mark.parametrize(
    ("optimizer", "microbatches"), [("adamw", 1), ("foreach", 1), ("momentum", 2)]
)
def test_a_whole_step_needs_what_a_real_step_needs(optimizer: str, microbatches: int) -> None:
    workload = workload_of(OPTIMIZERS[optimizer])
    mixed = actions({"layers.0": "recompute", "layers.1": "save", "layers.2": "recompute"})
    observed = whole_step(workload, mixed, microbatches=microbatches)
    assert max(observed.peak_bytes) == executed_peak(workload, mixed, microbatches)
    assert observed.basis is Basis.SIMULATED


def test_microbatches_after_the_third_are_as_the_third_and_not_run() -> None:
    workload = workload_of()
    saved = actions({"layers.0": "save"})
    third = whole_step(workload, saved, microbatches=3)
    assert whole_step(workload, saved, microbatches=2**31) == third


def test_a_segment_needs_what_it_needs_in_a_real_step() -> None:
    workload = workload_of()
    together = ("layers.1", "layers.2")
    options: dict[str, str] = dict.fromkeys(("layers.0", *together), "recompute")
    segmented = actions(options, together)
    observed = whole_step(workload, segmented)
    assert max(observed.peak_bytes) == executed_peak(workload, segmented, 1)
    assert max(observed.peak_bytes) != max(whole_step(workload, actions(options)).peak_bytes)


def test_a_plan_is_certified_to_the_byte_and_nothing_is_left_behind() -> None:
    workload = profiled()[0]
    model: Any = workload.model
    optimizer: Any = workload.optimizer
    before = dict(model.named_parameters()), optimizer.param_groups[0]["params"][:]
    roomy = planned()
    tight = planned((roomy.predicted_peak_bytes or 0) * 4 // 5)
    assert {action.option for action in tight.actions} > {"save"}
    certificate = certify(workload, tight)
    assert certificate.holds
    assert certificate.basis is Basis.SIMULATED
    assert certificate.observed_peak_bytes == tight.predicted_peak_bytes
    assert not certificate.findings
    assert [each.phase for each in certificate.phases] == ["forward", "backward", "optimizer"]
    assert all(each.observed_bytes <= each.predicted_bytes for each in certificate.phases)
    assert certificate.method.endswith("with AdamW")
    after = dict(model.named_parameters()), optimizer.param_groups[0]["params"]
    assert all(after[0][name] is tensor for name, tensor in before[0].items())
    assert all(new is old for new, old in zip(after[1], before[1], strict=True))
    assert not optimizer.state
    assert all(each.grad is None for each in model.parameters())


def test_gradients_of_an_earlier_microbatch_are_predicted_and_seen() -> None:
    workload = profiled()[0]
    once, twice = planned(), planned(accumulation=2)
    assert (twice.predicted_peak_bytes or 0) > (once.predicted_peak_bytes or 0)
    certificate = certify(workload, twice, microbatches=2)
    assert certificate.holds
    assert (twice.predicted_peak_bytes or 0) >= certificate.observed_peak_bytes
    # As one microbatch the same actions need less than was predicted for two.
    assert certify(workload, twice).observed_peak_bytes < certificate.observed_peak_bytes


@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer.ADAMW,
        Optimizer.ADAMW_FOREACH,
        Optimizer.SGD_MOMENTUM,
        Optimizer.RMSPROP,
        Optimizer.ADAGRAD,
    ],
)
def test_an_optimizer_that_is_only_named_is_counted_as_it_steps(optimizer: Optimizer) -> None:
    workload = workload_of(None)
    found = plan(
        PlanRequest(
            profile=profile_of_no_optimizer(),
            budget=Budget(bytes=2**30),
            training=Training(optimizer=optimizer),
        )
    )
    stepped = with_optimizer(workload, optimizer)
    seen = whole_step(stepped, found)
    for phase in ("backward", "optimizer"):
        predicted = max(each.peak_bytes for each in found.moments if each.phase == phase)
        # A step goes through tensors in its own order, which decides what two of them take.
        assert seen.of_phase(phase) <= predicted <= 1.01 * seen.of_phase(phase)


def test_a_prediction_that_is_too_low_or_too_high_is_found() -> None:
    workload = profiled()[0]
    real = planned().predicted_peak_bytes or 0
    for wrong, word in ((real - 1, "above"), (real + real // 40, "below")):
        given = Plan(
            actions=planned().actions,
            predicted_peak_bytes=wrong,
            moments=(MomentPeak(phase="forward", peak_bytes=wrong),),
            budget=BudgetConversion(allocated_bytes=wrong),
        )
        certificate = certify(workload, given)
        assert certificate.holds == (wrong >= real)
        assert f"{word} the" in certificate.findings[0]
        assert any("above the budget" in each for each in certificate.findings) == (wrong < real)


def test_a_step_without_an_optimizer_is_not_a_whole_one() -> None:
    with pytest.raises(InvalidRequestError, match="give the workload one") as error:
        certify(workload_of(None), actions({"layers.0": "save"}))
    assert error.value.field == "workload.optimizer"


def test_a_plan_of_another_model_is_refused_by_the_block_that_is_not_there() -> None:
    with pytest.raises(InvalidRequestError, match=r"this one has no layers\.99") as error:
        certify(workload_of(), actions({"layers.99": "recompute"}))
    assert error.value.field == "plan.actions"


def test_a_workload_steps_the_optimizer_that_is_named_else_its_own_else_adamw() -> None:
    own = workload_of(OPTIMIZERS["momentum"])
    assert with_optimizer(own) is own
    assert type(with_optimizer(workload_of(None)).optimizer) is torch.optim.AdamW
    assert type(with_optimizer(own, Optimizer.RMSPROP).optimizer) is torch.optim.RMSprop
    with pytest.raises(InvalidRequestError, match=r"LION_8BIT is none of torch\.optim's"):
        with_optimizer(own, Optimizer.LION_8BIT)


def test_the_profile_has_the_optimizer_as_it_steps_and_what_stands_around() -> None:
    found = profile(workload_of(OPTIMIZERS["foreach"]))
    weights = sum(block.parameter_bytes for block in found.blocks)
    moments = found.optimizer_state_bytes or 0
    assert 2 * weights < moments < 2 * weights + 4 * 100  # and a counter for each tensor
    # For each step foreach makes roots of all second moments at once.
    assert found.optimizer_step_bytes >= weights
    assert profile(workload_of(OPTIMIZERS["momentum"])).optimizer_state_bytes == weights
    assert found.standing_bytes == 4 * WIDTH + 4 * ROWS * WIDTH
    assert profile(workload_of(None)).optimizer_state_bytes is None
