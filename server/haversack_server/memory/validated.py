"""The settings that measured runs cover under each kernel profile, and those of a run beyond them.

Package data, ``measured/validated.json``: for every profile the values of each setting that its
measured runs have. The benchmark of Estimate writes it by one rule, from what was asked and never
from what was measured, so the list stands before anything is fitted. Each setting is looked up by
itself: two that were measured apart count as covered together. Sizes are no settings here, since
every term is written in them.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from haversack.finetuning import Finetuning, StoredWeights
from haversack.parallelism import Sharding
from haversack.run import Recompute, TrainingRun
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.blocks import Shape
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.finetuned import numbers_of
from haversack_server.memory.kernel_profile import PACKAGE
from haversack_server.memory.recipe import Recipe, precision_of

Covered = Mapping[str, Sequence[str]]
ALONE: Covered = MappingProxyType({"axes": (), "ranks": ()})  # one rank
AT_LEAST = MappingProxyType({"axes": "none", "ranks": "one"})  # where nothing of it is in use


@cache
def validated() -> Mapping[str, Covered]:
    """Read the values of each setting that were measured, by profile."""
    text = (files(PACKAGE) / "measured" / "validated.json").read_text(encoding="utf-8")
    return {row["profile"]: row["settings"] for row in json.loads(text)["profiles"]}


def not_validated(profile: str, in_use: Covered) -> tuple[str, ...]:
    """Name the settings of a run that no measured run under its profile has."""
    measured = validated().get(profile)
    if measured is None:
        return (f"kernel profile {profile}: there are no measured runs under it",)
    return tuple(
        f"{name} {_told(value)} under {profile} "
        f"(measured: {', '.join(map(_told, measured[name])) or AT_LEAST[name]})"
        for name, values in in_use.items()
        for value in values
        if value not in measured[name]
    )


def _told(value: str) -> str:
    """Say in words what the list says in a few letters: which weights train beside which."""
    part, _, stored = value.partition(" beside ")
    if part != "part":
        return value
    return f"only some (the others frozen{f', stored as {stored}' if stored else ''})"


def settings_in_use(
    run: TrainingRun, model: Architecture, degrees: Degrees, shape: Shape, numbers: Recipe
) -> Covered:
    """Name the settings of a run that decide how its memory is laid out.

    Actions block by block name no recomputation: they are a plan's, whose peak is judged by the
    same ends as the run that it was made for.
    """
    training, _ = numbers_of(run.training)
    precision = precision_of(training, degrees.sharding).name.lower()
    recompute = (run.training.recompute or Recompute.NONE).name.lower()
    return {
        "family": (model.family,),
        "precision": (precision + (" with products in 8 bits" if shape.fp8 else ""),),
        "optimizer": (numbers.optimizer.name.lower(),),
        "attention": (str(shape.attention),),
        "recompute": () if run.training.actions else (recompute,),
        "trained weights": (_trained(run.training.finetuning),),
        "sharding": (_sharding(degrees),),
        "axes": _axes(run, degrees),
        # One rank is no evidence of several. Several are of one, which does the same alone.
        "ranks": ("several",) if degrees.world_size > 1 else (),
    }


def _trained(finetuning: Finetuning | None) -> str:
    if finetuning is None:
        return "all"
    stored = finetuning.frozen_weights or StoredWeights.COMPUTE
    beside = "" if stored is StoredWeights.COMPUTE else f" beside {stored.name.lower()}"
    return f"part{beside}"


def _sharding(degrees: Degrees) -> str:
    """Name what is divided; a sharding among one that gathers nothing is none."""
    divides = degrees.shard_ranks > 1 or degrees.shards_parameters
    return (degrees.sharding if divides else Sharding.REPLICATED).name.lower()


def _axes(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Name the axes in use beside data ranks, each with the way it is used."""
    sequences = " with sequence parallelism" if degrees.sequence_parallel else ""
    chunks = " in chunks" if (run.parallelism.virtual_stages or 1) > 1 else ""
    in_use = {
        f"tp{sequences}": degrees.tp,
        f"pp{chunks}": degrees.pp,
        "cp": degrees.cp,
        "ep": degrees.ep,
        "hsdp": degrees.dp_replicate if degrees.dp_shard > 1 else 1,
    }
    return tuple(axis for axis, ranks in in_use.items() if ranks > 1)
