"""Training that is stopped and gone on with: whole, and forgetting one kind of state each.

A case is a factory under a name such as ``resume-forgets-schedule``. What it is expected to show
is in ``haversack_server.verify.cases``. These are cases of training checkpoints on disk, and of no
activation checkpoint.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from haversack.torch import TrainingRun, TrainingWorkload

BATCH, WIDTH = 8, 6
State = dict[str, Any]
Factory = Callable[..., TrainingWorkload]
TRAININGS: dict[str, Factory] = {}


def training(factory: Factory) -> Factory:
    """Register a factory under its own name, with ``resume`` before it."""
    TRAININGS[f"resume-{factory.__name__.replace('_', '-')}"] = factory
    return factory


class Samples:
    """An endless stream of samples in random order, of which each rank takes its part."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.position = 0

    def __call__(self, rank: int, size: int) -> tuple[torch.Tensor, ...]:
        """Give this rank's rows of the next global batch, of shape (BATCH / size, WIDTH)."""
        drawn = torch.randn(BATCH, WIDTH, generator=self.generator)
        self.position += BATCH
        own = drawn.chunk(size)[rank]
        return own, own.sum(1, keepdim=True).sin()

    def state_dict(self) -> State:
        """Give what decides on the next samples."""
        return {"generator": self.generator.get_state(), "position": self.position}

    def load_state_dict(self, state: State) -> None:
        """Go on where a stream was."""
        self.generator.set_state(state["generator"])
        self.position = state["position"]


class SamplesWithoutGenerator(Samples):
    """Tells its position, and not the generator that decides on the samples."""

    def state_dict(self) -> State:
        """Give the position."""
        return {"position": self.position}

    def load_state_dict(self, state: State) -> None:
        """Take the position."""
        self.position = state["position"]


class Net(nn.Module):
    """Two layers and a head; gives the loss of its samples."""

    def __init__(self, between: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh())
        self.between = between or nn.Identity()
        self.head = nn.Linear(2 * WIDTH, 1)

    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Give the mean squared error for ``x`` of shape (rows, WIDTH)."""
        found: torch.Tensor = self.head(self.between(self.body(x)))
        return nn.functional.mse_loss(found, wanted)


class Warming(nn.Module):
    """Multiplies by a factor that grows with every step: a buffer, kept or not."""

    steps: torch.Tensor

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()), persistent=kept)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale ``x``, and count."""
        scaled = x * (1 + self.steps / 10)
        self.steps += 1
        return scaled


class Counting(nn.Module):
    """Multiplies by a factor that a plain attribute makes, which nothing keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale ``x``, and count."""
        self.calls += 1
        return x * (1 + self.calls / 10)


class Noise(nn.Module):
    """Adds what no seed repeats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale ``x`` by a random number of the operating system."""
        return x * (1 + int.from_bytes(os.urandom(2), "little") / 2**16)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Train body and head as two groups."""
    parts: Any = model
    groups = [{"params": parts.body.parameters()}, {"params": parts.head.parameters(), "lr": 0.02}]
    return torch.optim.AdamW(groups, lr=0.05)


def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Change the learning rate at every step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def of(between: nn.Module | None = None, **others: Any) -> TrainingWorkload:
    """Build the training that all cases share."""
    settings: dict[str, Any] = {"data": Samples(), "optimizer": adamw, "scheduler": halving}
    return TrainingWorkload(Net(between), **settings | others)


def without(*keys: str) -> dict[str, Any]:
    """Keep everything but some keys."""

    def save(run: TrainingRun) -> State:
        return {key: each for key, each in run.state_dict().items() if key not in keys}

    return {"save": save, "restore": TrainingRun.load_state_dict}


@training
def whole() -> TrainingWorkload:
    """Everything is kept: weights, optimizer, schedule, data and random states."""
    return of(Warming(kept=True))


@training
def dropout() -> TrainingWorkload:
    """Everything is kept, and each rank draws random numbers of its own."""
    return of(nn.Dropout(0.5))


@training
def gradient_scaler() -> TrainingWorkload:
    """A gradient scaler among the extras, whose scale grows, is kept."""
    return of(extras={"scaler": scaler()}, step=scaled_step)


@training
def forgets_optimizer() -> TrainingWorkload:
    """Moments, step counts and learning rates of the optimizer are not kept."""
    return of(**without("optimizer"))


@training
def forgets_schedule() -> TrainingWorkload:
    """The step of the learning rate's schedule is not kept."""
    return of(**without("scheduler"))


@training
def forgets_random_states() -> TrainingWorkload:
    """The states of the random generators are not kept, and dropout draws from them."""
    return of(nn.Dropout(0.5), **without("rng"))


@training
def forgets_position() -> TrainingWorkload:
    """The position in the data is not kept, so the first samples come again."""
    return of(**without("data"))


@training
def forgets_buffer() -> TrainingWorkload:
    """A buffer that counts steps is not persistent, so no state dict has it."""
    return of(Warming(kept=False))


@training
def forgets_parameter_group() -> TrainingWorkload:
    """The parameters of one group of the optimizer, the head, are not kept."""
    return of(save=without_head, restore=restore_what_is_there)


@training
def forgets_gradient_scaler() -> TrainingWorkload:
    """The scale of a gradient scaler is not kept."""
    return of(extras={"scaler": scaler()}, step=scaled_step, **without("extras"))


@training
def forgets_attribute() -> TrainingWorkload:
    """A plain attribute that the model computes with is in no state dict."""
    return of(Counting())


@training
def forgets_shuffle() -> TrainingWorkload:
    """The data tells its position, and not the generator that decides on its samples."""
    return of(data=SamplesWithoutGenerator())


@training
def random_states_of_one_rank() -> TrainingWorkload:
    """All ranks keep their random states under one name, so one rank's are kept."""
    return of(nn.Dropout(0.5), save=rng_under_one_name, restore=restore_rng_of_one_name)


@training
def noise_of_the_system() -> TrainingWorkload:
    """No seed repeats the training, stopped or not."""
    return of(Noise())


def scaler() -> torch.amp.GradScaler:
    """Make a gradient scaler whose scale doubles every second step."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)


def scaled_step(run: TrainingRun, batch: tuple[Any, ...]) -> torch.Tensor:
    """Take a step with a scaled loss."""
    scaling = run.extras["scaler"]
    loss: torch.Tensor = run.model(*batch)
    scaling.scale(loss).backward()
    scaling.step(run.optimizer)
    scaling.update()
    run.optimizer.zero_grad()
    return loss


def without_head(run: TrainingRun) -> State:
    """Keep everything but the parameters of the head."""
    state = run.state_dict()
    kept = {name: each for name, each in state["model"].items() if not name.startswith("head.")}
    return {**state, "model": kept}


def restore_what_is_there(run: TrainingRun, state: State) -> None:
    """Put back what was kept, and take no notice of what was not."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(
        full_state_dict=run.full, broadcast_from_rank0=run.full, strict=False
    )
    set_model_state_dict(run.model, state["model"], options=options)
    run.load_state_dict({key: each for key, each in state.items() if key != "model"})


def rng_under_one_name(run: TrainingRun) -> State:
    """Keep random states as one process would."""
    state = run.state_dict()
    return {**state, "rng": state["rng"][f"rank {run.rank}"]}


def restore_rng_of_one_name(run: TrainingRun, state: State) -> None:
    """Put back what every rank finds under the one name."""
    run.load_state_dict({**state, "rng": {f"rank {run.rank}": state["rng"]}})
