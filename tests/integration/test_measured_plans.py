"""Plans on a real allocator: a convolution takes a workspace that no profile sees, but measured.

The oracle is the CPU's allocator, as PyTorch's profiler hears it.
"""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are measured")

import torch
from tests.integration.test_profiles import workload_of

from haversack.basis import Basis
from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.profile import Profile
from haversack.run import Budget
from haversack.torch import Measured, Workload, apply, calibrate, measure, profile
from haversack_server.plan.answer import plan


def planned(found: Profile, budget_bytes: int) -> Plan:
    return plan(PlanRequest(profile=found, budget=Budget(bytes=budget_bytes), frontier_points=0))


def measured(workload: Workload, applied: Plan) -> Measured:
    model: Any = workload.model
    with apply(model, applied):
        return measure(workload, plan=applied, steps=1)


def test_a_plan_with_the_measured_reserve_holds_on_the_allocator() -> None:
    workload = workload_of("resnet")
    model: Any = workload.model
    workload = replace(workload, optimizer=torch.optim.AdamW(model.parameters()))
    found = profile(workload)
    unplanned = measure(workload, steps=1)
    budget = unplanned.peak_bytes * 4 // 5
    first = planned(found, budget)
    before = measured(workload, first)
    assert before.certificate is not None
    assert before.certificate.basis is Basis.MEASURED
    # Workspaces of convolutions: the profile does not know them.
    assert before.peak_bytes > (first.predicted_peak_bytes or 0)
    assert any("above the" in each for each in before.certificate.findings)

    calibrated = calibrate(found, first, before)
    again = planned(calibrated, budget)
    assert again.status is PlanStatus.OPTIMAL
    assert again.basis is Basis.MEASURED
    after = measured(workload, again)
    assert after.peak_bytes <= (again.predicted_peak_bytes or 0) <= budget
    assert after.certificate is not None
    assert after.certificate.holds
