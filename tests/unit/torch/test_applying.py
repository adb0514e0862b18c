"""A plan put into effect: equal to the bit, without a changed name, and taken back."""

import copy
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="plans are applied to models of PyTorch")

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply, replay_context
from haversack.torch.blocks import fingerprint
from haversack.torch.policy import Policy, parsed

ROWS, WIDTH = 3, 8
SELECTIVE = "selective aten.addmm.default:1"


class Block(nn.Module):
    """Two linear layers with dropout; keyword arguments and a tuple as layers often have them."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.calls = 0

    def forward(self, hidden: Tensor, *, scale: float = 1.0, debug: bool = False) -> Tensor:
        assert not debug
        self.calls += 1
        wide = nn.functional.dropout(torch.tanh(self.wide(hidden)), 0.3, self.training)
        result: Tensor = hidden + scale * self.narrow(wide)
        return result


class Model(nn.Module):
    def __init__(self, blocks: int = 3, block: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(blocks))

    def forward(self, hidden: Tensor, **kwargs: Any) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden, **kwargs)
        return hidden.square().mean()


def model_of(**kwargs: Any) -> Model:
    torch.manual_seed(0)
    return Model(**kwargs)


def plan_of(options: Mapping[str, str], model: nn.Module | None = None) -> Plan:
    modules = dict(model.named_modules()) if model is not None else {}
    return Plan(
        actions=tuple(
            BlockAction(
                block=name,
                option=option,
                fingerprint=fingerprint(modules[name]) if name in modules else "",
            )
            for name, option in options.items()
        )
    )


MIXED = plan_of({"layers.0": "recompute", "layers.1": SELECTIVE, "layers.2": "save"})


def step(model: nn.Module, **kwargs: Any) -> list[Tensor]:
    """Run one step; gives loss and gradients, which are cleared."""
    torch.manual_seed(1)
    loss = model(torch.randn(ROWS, WIDTH), **kwargs)
    loss.backward()
    gradients = [each.grad for each in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *(each for each in gradients if each is not None)]


def assert_equal(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(map(torch.equal, one, other))


def test_loss_and_gradients_are_equal_to_the_bit() -> None:
    model = model_of()
    plain = step(model)
    with apply(model, MIXED) as applied:
        assert applied.options == {"layers.0": "recompute", "layers.1": SELECTIVE}
        assert_equal(step(model), plain)


def test_names_stay_and_removal_leaves_no_trace() -> None:
    model = model_of()
    names = [name for name, _ in model.named_parameters()]
    before = [dict(module.__dict__) for module in model.modules()]
    applied = apply(model, MIXED)
    assert [name for name, _ in model.named_parameters()] == names
    assert list(model.state_dict()) == names
    applied.remove()
    applied.remove()
    assert [dict(module.__dict__) for module in model.modules()] == before
    apply(model, MIXED).remove()


def test_a_forward_that_the_user_set_is_run_and_given_back() -> None:
    model = model_of()
    layer: Any = model.layers[0]
    forward = layer.forward
    calls: list[None] = []

    def own(hidden: Tensor) -> Tensor:
        calls.append(None)
        result: Tensor = forward(hidden)
        return result

    layer.forward = own
    with apply(model, MIXED):
        step(model)
    assert len(calls) == 2
    assert layer.forward is own


def test_what_is_recomputed_runs_twice_and_what_is_saved_once() -> None:
    model = model_of()
    with apply(model, MIXED):
        step(model)
    assert [layer.calls for layer in model.layers] == [2, 2, 1]


def test_nothing_is_recomputed_where_there_is_no_backward() -> None:
    model = model_of()
    with apply(model, MIXED), torch.no_grad():
        model(torch.randn(ROWS, WIDTH))
    assert [layer.calls for layer in model.layers] == [1, 1, 1]


def test_an_argument_may_have_the_name_of_a_setting() -> None:
    model = model_of()
    plain = step(model, debug=False, scale=0.5)
    with apply(model, MIXED):
        assert_equal(step(model, debug=False, scale=0.5), plain)


def saved_bytes(model: nn.Module) -> int:
    """Add up what backward needs, through hooks: what a policy saves itself is not in it."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(torch.randn(ROWS, WIDTH))
    return sum(sizes.values())


def test_less_is_saved() -> None:
    model = model_of()
    before = saved_bytes(model)
    with apply(model, plan_of({f"layers.{i}": "recompute" for i in range(3)})):
        assert saved_bytes(model) == 4 * ROWS * WIDTH * 4  # inputs of blocks, and of the loss
    assert saved_bytes(model) == before


class Executed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the calls that reach a kernel: what a policy saved does not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def executed(model: nn.Module) -> int:
    with Executed() as mode:
        step(model)
    counts: Counter[str] = mode.counts
    return counts["aten.addmm.default"]


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("recompute", 1),  # the second is left out by early stop
        ("selective aten.addmm.default:0", 0),
        ("selective aten.addmm.default:1", 1),
        ("selective aten.addmm.default:0,1", 0),
    ],
)
def test_a_policy_recomputes_all_but_the_occurrences_it_names(option: str, more: int) -> None:
    model = model_of(blocks=2)
    plain = executed(model)
    with apply(model, plan_of({"layers.0": option, "layers.1": option})):
        assert executed(model) == plain + 2 * more


def test_random_sources_outside_of_pytorch_are_replayed_if_asked() -> None:
    class Layer(Block):
        def forward(self, hidden: Tensor, **kwargs: Any) -> Tensor:
            kept = torch.tensor([random.random() for _ in range(WIDTH)])
            return super().forward(torch.tanh(hidden) * kept)

    model = model_of(block=Layer)
    random.seed(0)
    plain = step(model)
    random.seed(0)
    with apply(model, MIXED, context_fn=replay_context()):
        assert_equal(step(model), plain)


def test_a_copied_model_keeps_the_plan_on_its_own_parameters() -> None:
    model = model_of()
    plain = step(model)
    with apply(model, MIXED):
        twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_equal(step(twin), plain)
    assert twin.layers[0].calls == 2 + 1  # one of the plain step, before the copy


def test_another_models_plan_is_refused_with_the_block() -> None:
    plan = plan_of({"layers.0": "save", "layers.2": "recompute"}, model_of())
    with pytest.raises(InvalidRequestError, match=r"this one has no layers\.2"):
        apply(model_of(blocks=2), plan)
    other = model_of()
    other.layers[0] = nn.Linear(WIDTH, WIDTH)
    with pytest.raises(InvalidRequestError, match=r"layers\.0 have other names, shapes") as caught:
        apply(other, plan)
    assert caught.value.field == "plan.actions[0]"
    apply(model_of(), plan).remove()


def test_a_model_with_one_more_equal_block_is_refused() -> None:
    options = {"layers.0": "recompute", "layers.1": "save", "layers.2": "save"}
    plan = replace(plan_of(options, model_of()), model_fingerprint=fingerprint(model_of()))
    apply(model_of(), plan).remove()
    with pytest.raises(InvalidRequestError, match=r"such as layers\.3, which the plan") as caught:
        apply(model_of(blocks=4), plan)
    assert caught.value.field == "plan.model_fingerprint"
    # A plan of a described model knows names only.
    apply(model_of(blocks=4), plan_of(options)).remove()


def test_a_plan_without_fingerprints_is_refused_by_a_missing_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"no module 'layers\.7'"):
        apply(model_of(), plan_of({"layers.7": "recompute"}))


def test_applying_twice_is_refused() -> None:
    model = model_of()
    with apply(model, MIXED):
        with pytest.raises(InvalidRequestError, match=r"in effect on layers\.0 already"):
            apply(model, MIXED)
        with pytest.raises(InvalidRequestError, match=r"in effect on layers\.1 already"):
            apply(model, plan_of({"layers.1.wide": "recompute"}))
        with pytest.raises(InvalidRequestError, match=r"in effect on layers\.0 already"):
            apply(model, plan_of({"layers": "recompute"}))
        apply(model, plan_of({"layers.2": "recompute"})).remove()


def test_a_compiled_model_is_refused_in_words_that_say_what_to_do() -> None:
    plan = Plan(actions=(BlockAction(block="0", option="recompute"),))
    compiled: Any = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="eager")
    with pytest.raises(InvalidRequestError, match=r"before torch\.compile"):
        apply(compiled, plan)


def test_a_block_within_another_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="which has it already"):
        apply(model_of(), plan_of({"layers.0": "recompute", "layers.0.wide": "recompute"}))


@pytest.mark.parametrize(
    "option",
    [
        "offload",
        "selective",
        "selective aten.mm",
        "selective a:b",
        pytest.param(f"selective a:{'9' * 5000}", id="a number that Python does not read"),
        "selective a:\u0663",  # a digit, and none that is written
    ],
)
def test_an_option_that_cannot_be_applied_is_refused(option: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be applied") as caught:
        apply(model_of(), plan_of({"layers.0": "save", "layers.1": option}))
    assert caught.value.field == "plan.actions[1].option"


def test_a_plan_without_actions_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"no actions \(nothing fits\)"):
        apply(model_of(), Plan(reason="nothing fits"))


def test_a_selective_policy_under_an_outer_checkpoint_is_refused() -> None:
    model, hidden = model_of(), torch.randn(ROWS, WIDTH)
    with (
        apply(model, MIXED),
        pytest.raises(NotSupportedError, match=r"layers\.1 is selective and runs inside another"),
    ):
        checkpoint(model, hidden, use_reentrant=False)
    with apply(model, plan_of({"layers.0": "recompute"})):
        checkpoint(model, hidden, use_reentrant=False).backward()


def test_a_policy_that_saves_what_is_drawn_is_refused() -> None:
    model = model_of()
    option = "selective aten.native_dropout.default:0 aten.bernoulli_.float:0"
    with (
        apply(model, plan_of({"layers.0": option})),
        pytest.raises(NotSupportedError, match="draws random numbers"),
    ):
        step(model)


def test_a_block_whose_statistics_would_change_twice_is_refused() -> None:
    model = model_of(block=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)))
    plan = plan_of({"layers.1": "recompute"})
    with pytest.raises(NotSupportedError, match=r"layers\.1 cannot be recomputed: 1 would change"):
        apply(model, plan)
    apply(model.eval(), plan).remove()


def test_a_model_that_is_none_is_refused() -> None:
    model: Any = len
    with pytest.raises(InvalidRequestError, match="has no blocks"):
        apply(model, MIXED)


def test_a_policy_survives_the_name_of_its_option() -> None:
    policy = Policy(frozenset({("aten.mm.default", 10), ("aten.mm.default", 2), ("a.b", 0)}))
    assert policy.option == "selective a.b:0 aten.mm.default:2,10"
    assert parsed(policy.option) == policy
    assert parsed("recompute") is None
