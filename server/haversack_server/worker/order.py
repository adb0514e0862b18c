"""What the server asks of a job's process, and the workload that it is about, built there."""

from dataclasses import dataclass, replace

import torch

from haversack.torch import TrainingWorkload, Workload
from haversack.verify import VerifyRequest
from haversack_server.worker.load import load, load_training
from haversack_server.worker.prepare import pin
from haversack_server.worker.weights import take_weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What the server asks of a job's process."""

    job_id: str
    request: VerifyRequest
    allow: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    weights_dirs: tuple[str, ...] = ()
    values_file: str
    isolation: tuple[str, ...] = ()


def loaded(order: Order, seed: int) -> Workload:
    """Build the workload, with a seed. Raises BadWorkloadError."""
    pin(replace(order.request, seed=seed))
    torch.set_num_threads(1)  # a pool of threads would not live on in forked runs
    workload = load(order.request.workload, allow=order.allow, path=order.path)
    if order.request.weights:
        take_weights(workload, order.request.weights, order.weights_dirs)
    return workload


def loaded_training(order: Order) -> TrainingWorkload:
    """Build the training of a resume job. Raises BadWorkloadError."""
    pin(order.request)
    torch.set_num_threads(1)  # as above
    return load_training(order.request.workload, allow=order.allow, path=order.path)
