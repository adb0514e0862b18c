"""What a profile's plan says of the step that it counts."""

from dataclasses import replace

import pytest
from tests.unit.plan.test_profiled import PROFILE, planned

from haversack.plan import CountedStep
from haversack.profile import Profile
from haversack.training import Optimizer, Training

OWN = replace(
    PROFILE,
    optimizer_state_bytes=7,
    optimizer_class="Lamb",
    loss="the workload's own",
    device="cpu",
)
GIVEN = replace(OWN, optimizer_class="AdamW", optimizer=Optimizer.ADAMW)
COPIES = sum(block.parameter_bytes for block in PROFILE.blocks)


@pytest.mark.parametrize(
    ("profile", "training", "counted"),
    [
        (OWN, Training(), (Optimizer.UNSPECIFIED, "Lamb", 7)),
        (GIVEN, Training(), (Optimizer.ADAMW, "AdamW", 7)),
        (GIVEN, Training(optimizer=Optimizer.SGD_MOMENTUM), (Optimizer.SGD_MOMENTUM, "", COPIES)),
        (PROFILE, Training(), (Optimizer.ADAMW, "", 2 * COPIES)),
    ],
)
def test_the_optimizer_is_the_profiled_one_unless_another_is_named(
    profile: Profile, training: Training, counted: tuple[Optimizer, str, int]
) -> None:
    found = planned(10**6, profile, training=training).counted
    assert found is not None
    assert (found.optimizer, found.optimizer_class, found.optimizer_state_bytes) == counted
    assert (found.loss, found.device) == (profile.loss, profile.device)


@pytest.mark.parametrize(
    ("profile", "optimizer", "said"),
    [
        (PROFILE, Optimizer.UNSPECIFIED, "optimizer: AdamW"),
        (PROFILE, Optimizer.SGD, "optimizer: SGD, as named"),
        (OWN, Optimizer.SGD, "optimizer: SGD, as named, in place of the profiled one"),
        (OWN, Optimizer.UNSPECIFIED, "optimizer: the workload's own, as it stepped"),
        (GIVEN, Optimizer.UNSPECIFIED, "optimizer: ADAMW, as it stepped when it was profiled"),
    ],
)
def test_an_answer_says_whose_optimizer_it_counts(
    profile: Profile, optimizer: Optimizer, said: str
) -> None:
    answer = planned(10**6, profile, training=Training(optimizer=optimizer))
    assert [each for each in answer.assumptions if each.startswith(said)]


def test_microbatches_are_those_of_one_step() -> None:
    found = planned(10**6, training=Training(optimizer=Optimizer.SGD, accumulation=4)).counted
    assert found is not None
    assert (found.microbatches, found.optimizer_state_bytes) == (4, 0)


def test_gradients_of_arguments_have_no_moments() -> None:
    first, *others = PROFILE.blocks
    blocks = (replace(first, gradient_bytes=first.gradient_bytes + 100), *others)
    found = planned(10**6, replace(PROFILE, blocks=blocks), training=Training()).counted
    assert isinstance(found, CountedStep)
    assert found.optimizer_state_bytes == 2 * COPIES
    assert found.gradient_bytes > found.parameter_bytes
