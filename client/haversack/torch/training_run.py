"""A training run on one rank: what a training workload says, alive, and all of its state.

What is saved by default is what PyTorch needs to go on: model and optimizer by
``torch.distributed.checkpoint.state_dict``, schedule, data, random generators, extras. Imports
torch.distributed where state is asked for. Knows no files.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from haversack.torch.loss import loss_of, scalar_of
from haversack.torch.training_workload import TrainingWorkload
from haversack.torch.workload import Workload

State = dict[str, Any]


@dataclass(slots=True)
class TrainingRun:
    """One rank's part of a run. ``full`` says whether rank 0 keeps whole tensors for all."""

    training: TrainingWorkload
    model: Any
    optimizer: Any
    scheduler: Any | None
    rank: int
    size: int
    full: bool = False

    @property
    def data(self) -> Any:
        """Where batches come from."""
        return self.training.data

    @property
    def extras(self) -> Mapping[str, Any]:
        """Other things with a state, by name."""
        return self.training.extras

    def step(self) -> tuple[tuple[Any, ...], torch.Tensor]:
        """Take one step; give this rank's batch and its loss, without a graph."""
        batch = self.data(self.rank, self.size)
        take = self.training.step or usual_step
        return batch, scalar_of(take(self, batch)).detach()

    def state_dict(self) -> State:
        """Give everything that a run needs to go on; every rank must ask for it.

        Every rank has random states of its own, so all of them are kept, by rank.
        """
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer, options=self._options())
        state: State = {"model": model, "optimizer": optimizer}
        if self.scheduler is not None:
            state["scheduler"] = self.scheduler.state_dict()
        state["data"] = self.data.state_dict()
        state["rng"] = of_all_ranks(random_state())
        if self.extras:
            state["extras"] = {name: each.state_dict() for name, each in self.extras.items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Put back what ``state_dict`` gave; what ``state`` leaves out stays as it is.

        Random states come last, so that nothing draws from them before the next step. A rank that
        did not save has numbers of its own, which come from the states of one that did.
        """
        from torch.distributed.checkpoint import state_dict as parts

        options = self._options(broadcast=self.full)
        if "model" in state:
            parts.set_model_state_dict(self.model, state["model"], options=options)
        if "optimizer" in state:
            given, settings = state["optimizer"], options
            if self.full and (bare := _without_tensors(given, self.rank)) is not None:
                given, settings = bare, parts.StateDictOptions()
            parts.set_optimizer_state_dict(self.model, self.optimizer, given, options=settings)
        if self.scheduler is not None and "scheduler" in state:
            self.scheduler.load_state_dict(state["scheduler"])
        if "data" in state:
            self.data.load_state_dict(state["data"])
        for name, each in state.get("extras", {}).items():
            self.extras[name].load_state_dict(each)
        if "rng" in state:
            set_random_state_of(self.rank, state["rng"])

    def _options(self, *, broadcast: bool = False) -> Any:
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        # Whole tensors on rank 0 alone: as many copies as ranks would be held otherwise.
        return StateDictOptions(
            full_state_dict=self.full, cpu_offload=self.full, broadcast_from_rank0=broadcast
        )


def _without_tensors(kept: State, rank: int) -> State | None:
    """Give every rank what rank 0 keeps of an optimizer that has no tensors; None if it has some.

    PyTorch 2.13 takes the device of whole tensors from the first of them, and asserts that there
    is one: SGD without momentum has none.
    """
    import torch.distributed as dist

    has_tensors = any(kept.get("state", {}).values())
    given = [None if has_tensors or rank else kept]
    dist.broadcast_object_list(given, src=0)
    return given[0]


def usual_step(run: TrainingRun, batch: tuple[Any, ...]) -> torch.Tensor:
    """Take a step as most do: forward, backward, optimizer, schedule."""
    output = run.model(*batch)
    loss = loss_of(Workload(run.model, loss=run.training.loss), output).tensor
    torch.autograd.backward(loss)
    run.optimizer.step()
    if run.scheduler is not None:
        run.scheduler.step()
    run.optimizer.zero_grad()
    return loss


def of_all_ranks(own: State) -> State:
    """Give what every rank has, by the name of the rank."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return {"rank 0": own}
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return {f"rank {rank}": each for rank, each in enumerate(found)}


def set_random_state_of(rank: int, kept: Mapping[str, Any]) -> None:
    """Set the default generators to what a rank kept, or on from what another one did."""
    if not kept:
        return
    own = kept.get(f"rank {rank}")
    set_random_state(own if own is not None else list(kept.values())[rank % len(kept)])
    if own is None:
        # Two ranks with one state would draw the same numbers, as if they were one.
        torch.manual_seed(int(torch.randint(2**32, ())) + rank)
        random.seed(random.getrandbits(32) + rank)
        np.random.seed((int(np.random.randint(2**31)) + rank) % 2**32)


def random_state() -> State:
    """Give the states of the default generators: torch on the CPU and each GPU, python, numpy."""
    state: State = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }
    cuda: Any = torch.cuda  # parts of it have no types
    for index in range(cuda.device_count() if cuda.is_initialized() else 0):
        state[f"cuda:{index}"] = cuda.get_rng_state(index)
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Set the default generators to what ``random_state`` gave."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(state["numpy"])
    for name in state:
        if name.startswith("cuda:"):
            torch.cuda.set_rng_state(state[name], int(name.partition(":")[2]))
