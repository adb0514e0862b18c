"""Workloads that tests run as entry points: small models, each with one thing about it."""

from haversack.torch import Workload

from .cases import mlp


def build(layers: int = 2) -> Workload:
    return mlp(layers=layers)
