"""Recomputations that leave results out: what runs, what is equal, and what is refused."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="plans are applied to models of PyTorch")

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from haversack.errors import NotSupportedError
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import Workload, apply, profile, profiling
from haversack.torch.policy import Policy, parsed

ROWS, WIDTH = 256, 8
# Of what is before the saved result nothing has to run again; here the factor of 2 does.
TRIMMED = "selective aten.tanh.default:0 without aten.add.Tensor:0 aten.addmm.default:0"


class Block(nn.Module):
    """Two products, with what no backward needs between them, and dropout if asked."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, WIDTH)
        self.narrow = nn.Linear(WIDTH, WIDTH)
        self.rate = rate

    def forward(self, hidden: Tensor) -> Tensor:
        rotated = self.wide(hidden) + 1  # linear: only its result is needed
        inner = nn.functional.dropout(rotated * 2, self.rate)
        result: Tensor = hidden + self.narrow(nn.functional.gelu(torch.tanh(inner)))
        return result


class Model(nn.Module):
    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(rate) for _ in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def model_of(rate: float = 0.0) -> Model:
    torch.manual_seed(0)
    return Model(rate)


def step(model: nn.Module) -> list[Tensor]:
    torch.manual_seed(1)
    loss = model(torch.randn(ROWS, WIDTH)).square().mean()
    loss.backward()
    gradients = [each.grad for each in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *(each for each in gradients if each is not None)]


def plan_of(option: str) -> Plan:
    return Plan(actions=tuple(BlockAction(block=f"layers.{i}", option=option) for i in range(3)))


def cuts_of(model: nn.Module) -> list[str]:
    """Give the options of the middle block that leave something out."""
    found = profile(Workload(model, args=(torch.ones(ROWS, WIDTH),)))
    table = next(found.tables[each.table] for each in found.blocks if each.name == "layers.1")
    policies = [(option, parsed(option)) for option in table.option]
    return [option for option, policy in policies if policy is not None and policy.left_out]


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_every_cut_of_a_profile_is_equal_to_the_bit(rate: float) -> None:
    model = model_of(rate)
    plain = step(model)
    cuts = cuts_of(model)
    assert cuts
    for option in cuts:
        with apply(model, plan_of(option)):
            assert all(map(torch.equal, step(model), plain))


def test_a_cut_that_cannot_be_run_is_no_option_and_the_profile_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = "selective without aten.tanh.default:0"
    monkeypatch.setattr(profiling, "cuts_of", lambda blocks: [dict.fromkeys(blocks, bad)])
    found = profile(Workload(model_of(), args=(torch.ones(ROWS, WIDTH),)))
    assert bad not in {option for table in found.tables for option in table.option}
    (why,) = [each for each in found.not_profiled if "leaves results out" in each]
    assert "gelu.default reads, in the recomputation" in why


def test_what_is_left_out_does_not_run_again() -> None:
    def flops(model: nn.Module) -> int:
        with FlopCounterMode(display=False) as counted:
            step(model)
        count: int = counted.get_total_flops()
        return count

    model = model_of()
    plain = flops(model)
    with apply(model, plan_of("selective aten.tanh.default:0")):
        # Of each block one product, by rows of WIDTH; the second is left out by early stop.
        assert flops(model) == plain + 3 * 2 * ROWS * WIDTH * WIDTH
    with apply(model, plan_of(TRIMMED + " aten.mul.Tensor:0")):
        assert flops(model) == plain


@pytest.mark.parametrize(
    ("option", "where"),
    [
        (TRIMMED, r"aten\.mul\.Tensor reads, in the recomputation"),
        ("selective without aten.tanh.default:0", r"aten\.\w+\.default reads, in the"),
    ],
)
def test_a_policy_that_leaves_out_too_much_raises(option: str, where: str) -> None:
    model = model_of()
    with apply(model, plan_of(option)), pytest.raises(NotSupportedError, match=where):
        step(model)


def test_a_result_that_only_the_backward_reads_raises_there() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()), nn.Linear(WIDTH, 1))
    plan = Plan(actions=(BlockAction(block="0", option="selective without aten.tanh.default:0"),))
    with apply(model, plan), pytest.raises(NotSupportedError, match="reads, in the backward"):
        step(model)


def test_more_operations_than_in_the_forward_are_refused() -> None:
    class Moody(Block):
        calls = 0

        def forward(self, hidden: Tensor) -> Tensor:
            self.calls += 1
            more = super().forward(hidden)
            return more if self.calls == 1 else super().forward(more - hidden)

    model = model_of()
    model.layers[1] = Moody()
    option = "selective aten.addmm.default:1 without aten.mul.Tensor:7"
    with (
        apply(model, Plan(actions=(BlockAction(block="layers.1", option=option),))),
        set_checkpoint_early_stop(False),
        pytest.raises(NotSupportedError, match="runs more often in the recomputation"),
    ):
        step(model)


def test_a_second_backward_is_refused() -> None:
    model = model_of()
    option = TRIMMED + " aten.mul.Tensor:0"
    with apply(model, plan_of(option)):
        loss = model(torch.randn(ROWS, WIDTH)).sum()
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="allows one backward"):
            loss.backward()


def test_a_policy_with_what_it_leaves_out_survives_the_name_of_its_option() -> None:
    saved, left_out = ("aten.mm.default", 2), ("aten.add.Tensor", 0)
    policy = Policy(frozenset({saved}), frozenset({left_out}))
    assert policy.option == "selective aten.mm.default:2 without aten.add.Tensor:0"
    assert parsed(policy.option) == policy
    nothing = Policy(frozenset(), frozenset({left_out}))
    assert parsed(nothing.option) == nothing
    assert parsed("selective aten.mm.default:2 without") is None
    assert parsed("selective aten.mm.default:2 without aten.mm") is None


@pytest.mark.slow
def test_a_compiler_takes_what_is_saved_and_leaves_out_by_itself() -> None:
    model = model_of()
    plain = step(model)
    with apply(model, plan_of(TRIMMED + " aten.mul.Tensor:0")):
        compiled: Any = torch.compile(model, backend="aot_eager")
        assert all(map(torch.equal, step(compiled), plain))
