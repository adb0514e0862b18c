"""Models that no seed repeats: whatever is compared, nothing follows about checkpointing."""

import random
import time
import uuid
from typing import Any

import torch

from haversack_server.worker.zoo.case import region

Tensor = torch.Tensor
SYSTEM = random.SystemRandom()


@region()
def nondeterminism_clock(model: Any, x: Tensor) -> Any:
    """A factor from the clock."""
    return model.linear(x).sin() * (1 + time.perf_counter_ns() % 1000)


@region()
def nondeterminism_system_random(model: Any, x: Tensor) -> Any:
    """A factor from the operating system's random numbers."""
    return (model.linear(x) * SYSTEM.random()).sin()


@region()
def nondeterminism_identifier(model: Any, x: Tensor) -> Any:
    """A factor from a fresh UUID."""
    return (model.linear(x) * (uuid.uuid4().int % 997 + 1)).sin()


@region()
def nondeterminism_process(model: Any, x: Tensor) -> Any:
    """A factor from the time that the process has used."""
    return (model.linear(x) * (1 + time.thread_time_ns() % 997)).sin()
