"""The step that a plan counts, made of a workload; and what makes it another one."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="steps are of a module")

from torch import nn  # noqa: E402

from haversack.plan import CountedStep  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.training import Optimizer  # noqa: E402
from haversack_server.worker.planned_step import (  # noqa: E402
    after_steps,
    device_in_words,
    optimizer_in_words,
    same_step,
    untimed,
)

COUNTED = CountedStep(
    optimizer=Optimizer.ADAMW,
    optimizer_class="AdamW",
    optimizer_state_bytes=60,
    standing_bytes=48,
    loss="the model's output",
    device="cpu",
)


def workload(rows: int = 4) -> Workload:
    return Workload(nn.Linear(3, 2, bias=False), (torch.ones(rows, 3),))


def with_sgd() -> Workload:
    given = workload()
    return replace(given, optimizer=torch.optim.SGD(given.model.parameters()))  # type: ignore[attr-defined]


def test_the_optimizer_that_was_counted_is_the_one_that_is_stepped() -> None:
    for given in (workload(), with_sgd()):
        same = same_step(given, COUNTED)
        assert type(same.workload.optimizer).__name__ == "AdamW"
        assert same.differences == ()
        assert "AdamW that the plan counts" in optimizer_in_words(same.workload, COUNTED)


def test_the_state_of_an_optimizer_is_looked_at_once_it_has_stepped() -> None:
    stepped = same_step(workload(), COUNTED).workload
    stepped.model(*stepped.args).sum().backward()
    optimizer = stepped.optimizer
    assert optimizer is not None
    optimizer.step()
    # Two moments of 24 bytes, and the number of steps.
    counted = replace(COUNTED, optimizer_state_bytes=52)
    assert list(after_steps(stepped, counted)) == []
    assert "state is 52 B here, and the plan counts 60 B" in next(after_steps(stepped, COUNTED))


def test_a_plan_that_was_profiled_elsewhere_says_so_and_is_compared() -> None:
    assert device_in_words(COUNTED, "cpu") == ""
    assert "profiled on cpu, whose kernels may keep other" in device_in_words(COUNTED, "H200")


@pytest.mark.parametrize(
    ("given", "counted", "said"),
    [
        (workload(), None, "does not say what its step consists of"),
        (workload(), replace(COUNTED, microbatches=4), "4 microbatches before an optimizer's"),
        (workload(5), COUNTED, "inputs and buffers are 60 B here, and the plan counts 48 B"),
        (replace(workload(), loss=torch.sum), COUNTED, "the loss is the workload's own here"),
        (workload(), replace(COUNTED, optimizer=Optimizer.MUON), "none of torch.optim's"),
        (
            workload(),
            replace(COUNTED, optimizer=Optimizer.UNSPECIFIED),
            "own optimizer, AdamW, and the workload has none here",
        ),
    ],
)
def test_what_makes_it_another_step_is_named(
    given: Workload, counted: CountedStep | None, said: str
) -> None:
    (found,) = same_step(given, counted).differences
    assert said in found


@pytest.mark.parametrize(
    ("timed_on", "device", "said"),
    [
        ("", "cpu", "a roofline's"),
        ("cpu", "cpu", "has no name"),
        ("H100", "H200", "times are of H100, and measured was on H200"),
    ],
)
def test_times_of_another_device_are_not_compared(timed_on: str, device: str, said: str) -> None:
    (found,) = untimed(replace(COUNTED, timed_on=timed_on), device)
    assert said in found


def test_times_of_the_same_device_are() -> None:
    assert list(untimed(replace(COUNTED, timed_on="H200"), "H200")) == []
