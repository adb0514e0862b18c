"""Profiles of real models, planned and applied: what is executed stays within what was predicted.

The oracle is a tracker of live storages around the real step, with the plan applied.
"""

import functools
import gc
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")
pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import transformers
from tests.integration.live_storages import LiveStorages
from torch import Tensor, nn

from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.profile import Profile
from haversack.run import BlockAction, Budget, Optimizer, Training
from haversack.torch import Workload, apply, profile
from haversack_server.plan.answer import plan
from haversack_server.plan.pieces import pieces_of
from haversack_server.plan.profiled_actions import actions_of
from haversack_server.plan.profiled_chain import chain_of, options_of
from haversack_server.plan.profiled_peaks import peak_of

SLOW = pytest.mark.slow
SEQ, VOCABULARY = 64, 120
SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}


class Residual(nn.Module):
    """Two convolutions as in ResNet, with a group norm that recomputation may repeat."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.norm(self.first(hidden)))
        return torch.relu(hidden + self.second(inner))


class ResNet(nn.Module):
    """A stem, two stages of residual blocks with pooling between them, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stages = nn.ModuleList(Residual(8) for _ in range(5))
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image)
        for place, block in enumerate(self.stages):
            hidden = block(hidden)
            if place == 2:
                hidden = nn.functional.max_pool2d(hidden, 2)
        result: Tensor = self.head(hidden.mean((2, 3)))
        return result


def tokens() -> dict[str, Any]:
    given = torch.arange(2 * SEQ).reshape(2, SEQ) % VOCABULARY
    return {"input_ids": given, "labels": given}


def text_model(kind: str, **sizes: Any) -> Any:
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, **sizes)
    name = "AutoModelForMaskedLM" if kind == "bert" else "AutoModelForCausalLM"
    return getattr(transformers, name).from_config(config).train()


def workload_of(kind: str) -> Workload:
    torch.manual_seed(0)
    if kind == "resnet":
        model: Any = ResNet()
        return Workload(
            model, args=(torch.randn(2, 3, 32, 32),), loss=lambda output: output.square().mean()
        )
    if kind == "gpt2":
        sizes = {"n_embd": 48, "n_layer": 3, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
        return Workload(text_model(kind, **sizes), kwargs=tokens())
    sizes = {**SMALL, "intermediate_size": 96}
    return Workload(text_model(kind, **sizes), kwargs=tokens())


@dataclass
class Executed:
    """What a real step needed beside parameters and inputs, and what it computed."""

    peak_bytes: int
    loss: Tensor
    gradients: list[Tensor]


def execute(workload: Workload) -> Executed:
    model: Any = workload.model
    gc.collect()
    torch.manual_seed(1)
    given = [*workload.args, *workload.kwargs.values()]
    tracker: Any = LiveStorages([*model.parameters(), *model.buffers(), *given], states=True)
    with tracker:
        output = model(*workload.args, **workload.kwargs)
        loss = workload.loss(output) if workload.loss is not None else output.loss
        loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return Executed(tracker.peak_bytes, loss.detach(), gradients)


def states_bytes(found: Profile) -> int:
    """Add up what is there before the step, which the tracker leaves out."""
    return found.standing_bytes + sum(block.parameter_bytes for block in found.blocks)


def planned(found: Profile, budget_bytes: int, **settings: Any) -> Plan:
    return plan(
        PlanRequest(
            profile=found,
            budget=Budget(bytes=budget_bytes),
            training=Training(optimizer=Optimizer.SGD, **settings),
            frontier_points=4,
        )
    )


@functools.cache
def profiled(kind: str) -> tuple[Workload, Profile]:
    workload = workload_of(kind)
    return workload, profile(workload)


KINDS = pytest.mark.parametrize(
    "kind", ["resnet", *(pytest.param(kind, marks=SLOW) for kind in ("bert", "gpt2", "llama"))]
)


@KINDS
def test_the_executed_peak_is_within_the_predicted_one_at_every_budget(kind: str) -> None:
    workload, found = profiled(kind)
    model: Any = workload.model
    everything = planned(found, 2**40)
    assert {action.option for action in everything.actions} == {"save"}
    assert len(everything.frontier) > 2
    plain, ratios = execute(workload), []
    for point in everything.frontier:
        answer = planned(found, point.budget_bytes)
        assert answer.status is PlanStatus.OPTIMAL
        with apply(model, answer):
            executed = execute(workload)
        assert answer.predicted_peak_bytes is not None
        predicted = answer.predicted_peak_bytes - states_bytes(found)
        assert predicted <= point.budget_bytes - states_bytes(found)
        assert executed.peak_bytes <= predicted
        ratios.append(predicted / executed.peak_bytes)
        if kind in ("bert", "resnet"):  # the plain step of the others keeps a cache
            assert torch.equal(executed.loss, plain.loss)
            assert all(map(torch.equal, executed.gradients, plain.gradients))
    assert max(ratios) <= 1.1


@KINDS
def test_any_mix_of_options_stays_within_what_its_profile_says(kind: str) -> None:
    workload, found = profiled(kind)
    model: Any = workload.model
    blocks = [block for block in found.blocks if block.fingerprint]
    options = found.tables[blocks[0].table].option
    assert {"save", "recompute"} < set(options)
    for start in range(len(options)):
        turn = itertools.islice(itertools.cycle(options), start, None)
        chosen = {block.name: next(turn) for block in blocks}
        with apply(model, Plan(actions=actions(found, chosen))):
            executed = execute(workload)
        assert executed.peak_bytes <= peak_by_hand(found, chosen)


@KINDS
def test_every_segment_stays_within_what_is_predicted_of_it(kind: str) -> None:
    # In BERT the gradient of the tied embedding waits through the whole backward.
    workload, found = profiled(kind)
    ratios = list(ratios_of_segments(workload, found))
    assert len(ratios) > 2
    assert 1 <= min(ratios) <= max(ratios) <= 1.1


def ratios_of_segments(workload: Workload, found: Profile) -> Iterator[float]:
    """Execute each segment, everything else saved; give the predicted peak over the executed."""
    model: Any = workload.model
    chain = chain_of(found, options_of(found), moments_bytes=0, accumulation=1)
    pieces = pieces_of(chain)
    for piece in itertools.chain.from_iterable(pieces):
        if piece.option is not None:
            continue
        rest = (*pieces[: piece.first], *pieces[piece.stop :])
        saved = [rows[0] for rows in rest]
        cut = (*saved[: piece.first], piece, *saved[piece.first :])
        with apply(model, Plan(actions=actions_of(found, chain, cut))):
            executed = execute(workload)
        yield (peak_of(chain, cut)[0] - states_bytes(found)) / executed.peak_bytes


def actions(found: Profile, chosen: Mapping[str, str]) -> tuple[BlockAction, ...]:
    return tuple(
        BlockAction(
            block=block.name,
            option=chosen.get(block.name, "save"),
            fingerprint=block.fingerprint,
        )
        for block in found.blocks
    )


def peak_by_hand(found: Profile, chosen: Mapping[str, str]) -> int:
    """Add up the highest moment, states left out."""
    held, kept, peak = found.held_by_caller_bytes, 0, 0
    later = sum(block.gradient_bytes for block in found.blocks)
    for block in found.blocks:
        table = found.tables[block.table]
        row = table.option.index(chosen.get(block.name, "save"))
        later -= block.gradient_bytes
        forward = held + kept + table.forward_peak_bytes[row]
        backward = held + kept + later + table.backward_peak_bytes[row]
        peak = max(peak, forward, backward)
        kept += table.retained_bytes[row]
    return peak
