"""Real steps on a CUDA device: profiles, and what the caching allocator had at each boundary."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="steps of PyTorch are run")

import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device, or a PyTorch without CUDA", allow_module_level=True)

from tests.integration.small_gpt import BLOCKS, LENGTH, WORDS, workload_of

from haversack.basis import Basis
from haversack.plan import Plan, PlanRequest
from haversack.run import BlockAction, Budget
from haversack.torch import Workload, apply, measure, profile
from haversack_server.plan.answer import plan

pytestmark = pytest.mark.gpu
ROUNDED = 512  # bytes to which the allocator rounds each block


def on_cuda() -> Workload:
    """The small GPT with its optimizer and its arguments on the device."""
    workload = workload_of()
    model: Any = workload.model
    model.cuda()
    tokens = torch.randint(WORDS, (4, LENGTH), device="cuda")
    loss = torch.nn.functional.cross_entropy
    return replace(
        workload,
        args=(tokens,),
        loss=lambda logits: loss(logits.flatten(0, 1), tokens.flatten()),
        optimizer=torch.optim.AdamW(model.parameters()),
    )


def test_a_profile_on_cuda_is_measured_and_planned() -> None:
    found = profile(on_cuda(), device="cuda")
    assert found.basis is Basis.MEASURED
    assert found.device == torch.cuda.get_device_name()
    blocks = [each for each in found.blocks if each.name.startswith("h.")]
    assert len(blocks) == BLOCKS
    for block in blocks:
        table = found.tables[block.table]
        saved, again = table.option.index("save"), table.option.index("recompute")
        assert table.retained_bytes[again] < table.retained_bytes[saved]
        assert table.extra_ns[saved] == 0 < table.extra_ns[again]
    answer = plan(PlanRequest(profile=found, budget=Budget(bytes=2**40)))
    assert answer.basis is Basis.MEASURED


def test_the_allocator_s_peaks_are_read_at_every_boundary() -> None:
    workload = on_cuda()
    model: Any = workload.model
    saved = measure(workload, steps=1)
    names = [f"h.{place}" for place in range(BLOCKS)]
    places = [block for _, block, _ in saved.observed.moments()]
    assert [each for each in places if each in names] == [*names, *reversed(names)]
    assert saved.peak_bytes == max(saved.observed.peak_bytes)
    assert saved.reserved_bytes is not None
    assert saved.reserved_bytes >= saved.peak_bytes
    assert saved.device == torch.cuda.get_device_name()
    all_again = Plan(actions=tuple(BlockAction(block=name, option="recompute") for name in names))
    with apply(model, all_again):
        planned = measure(workload, plan=all_again, steps=1)
    assert planned.peak_bytes < saved.peak_bytes


def test_the_allocator_has_at_least_what_is_live() -> None:
    workload = on_cuda()
    found = profile(workload, device="cuda")
    answer = plan(PlanRequest(profile=found, budget=Budget(bytes=2**40)))
    measured = measure(workload, steps=1)
    assert answer.predicted_peak_bytes is not None
    # A prediction counts storages; the allocator rounds each up and takes workspaces.
    assert measured.peak_bytes % ROUNDED == 0
    assert measured.peak_bytes >= 0.98 * answer.predicted_peak_bytes
