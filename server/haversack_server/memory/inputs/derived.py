"""Fields that follow from what documents say together: recipe, accumulation, microbatch.

No one file says these: "bf16" is another recipe under DeepSpeed than under FSDP, and a global batch
is an accumulation only once the data ranks are known. Knows nothing of formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haversack import checks
from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Precision
from haversack_server.memory import kernel_profile
from haversack_server.memory.autocast_limits import runs_eagerly
from haversack_server.memory.degrees import resolve
from haversack_server.memory.inputs.merging import Merged
from haversack_server.memory.inputs.reading import (
    DEEPSPEED_FILE,
    ENGINE,
    GLOBAL_BATCH,
    MIXED_PRECISION,
    TOKENS_PER_MICROBATCH,
)

# What mixed precision means where there is no fp32 copy beside the parameters.
_CASTING = (Precision.FP32_BF16_COMPUTE, "fp32 shards, computed with in half precision")
_MASTER = (Precision.BF16_FP32_MASTER, "half-precision parameters with an fp32 master copy")
_AUTOCAST = (
    Precision.FP32_BF16_COMPUTE,
    "fp32 parameters under autocast, which keeps 2-byte copies of them (a model that is loaded in "
    "half precision has none: say precision=bf16 then)",
)
_HALF = ("bf16", "fp16")  # the scale of fp16's loss is one number
_RECIPES = {"fsdp1": _CASTING, "fsdp2": _CASTING, "deepspeed": _MASTER}


@dataclass(slots=True)
class Derivation:
    """Fields that were worked out, in words too, what was assumed, and what is not modelled."""

    values: dict[str, Any] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)


def derive(found: Merged, typed: Mapping[str, Any], *, has_deepspeed: bool) -> Derivation:
    """Work out the fields that neither the request nor a document states by itself.

    ``has_deepspeed`` tells whether a DeepSpeed configuration is among the documents.
    """
    values = {name: placed.setting.value for name, placed in found.items()} | dict(typed)
    made = Derivation()
    _file(found, typed, made, has_deepspeed)
    _recipe(found, values, made)
    _profile(found, values, made)
    _microbatch(found, values, made)
    _accumulation(found, values | made.values, typed, made)
    return made


def _file(found: Merged, typed: Mapping[str, Any], made: Derivation, has_deepspeed: bool) -> None:
    """Ask for the DeepSpeed file that another file names; its stage decides everything."""
    named = found.get(DEEPSPEED_FILE)
    if named is not None and not has_deepspeed and "parallelism.sharding" not in typed:
        file = named.setting.value.replace("\\", "/").rpartition("/")[2]
        made.unmodelled.append(
            f"{named.place} names {checks.shortly(file)}, which is not among the documents; add it"
        )


def _recipe(found: Merged, values: Mapping[str, Any], made: Derivation) -> None:
    if MIXED_PRECISION not in found or "training.precision" in values:
        return
    mixed, place = values[MIXED_PRECISION], found[MIXED_PRECISION].place
    if mixed == "no":
        made.values["training.precision"] = Precision.FP32
        made.assumptions.append(f"precision: fp32 throughout, since {place} mixes none")
        return
    engine = values.get(ENGINE)
    if "training.finetuning" in values and engine is None:
        return  # frozen weights are loaded in half precision; adapters say what they are in
    casts = engine in ("fsdp1", "fsdp2")
    is_sharded = values.get("parallelism.sharding") in (Sharding.FSDP1, Sharding.FSDP2)
    eager = runs_eagerly(values.get("kernel_profile", ""))
    if engine in (None, "ddp") and mixed in _HALF and eager:
        precision, words = _AUTOCAST
        made.values["training.precision"] = precision
        made.assumptions.append(f"precision: {words}: {mixed} of {place}")
        return
    if engine not in _RECIPES or (casts and not is_sharded):
        made.unmodelled.append(
            f"{place}={mixed}: autocast over fp32 weights in this framework: not modelled yet"
        )
        return
    precision, words = _RECIPES[engine]
    made.values["training.precision"] = precision
    made.assumptions.append(f"precision: {words}: {mixed} of {place} under {engine}")


def _profile(found: Merged, values: Mapping[str, Any], made: Derivation) -> None:
    """Take the framework's own kernels where their constants are known."""
    named = found.get("kernel_profile")
    if "kernel_profile" not in values and values.get(ENGINE) == "deepspeed":
        made.values["kernel_profile"] = "deepspeed"
    if named is not None and named.setting.value not in kernel_profile.names():
        made.values["kernel_profile"] = ""
        made.assumptions.append(
            f"kernels: no constants of {named.setting.value}, which {named.place} asks for"
        )


def _microbatch(found: Merged, values: Mapping[str, Any], made: Derivation) -> None:
    """Turn tokens of a microbatch into sequences, once the sequence's length is known."""
    tokens, seq = values.get(TOKENS_PER_MICROBATCH), values.get("training.seq")
    if tokens is None or seq is None or "training.microbatch" in values:
        return
    place = found[TOKENS_PER_MICROBATCH]
    if tokens % seq:
        raise InvalidRequestError(
            f"{place.place} says {tokens} tokens, which are no whole sequences of {seq}",
            field=f"{place.source.field}.{place.setting.key}",
        )
    made.values["training.microbatch"] = tokens // seq
    made.settings.append(
        f"training.microbatch = {tokens // seq}: {tokens} tokens of {place.place} in sequences "
        f"of {seq}"
    )


def _accumulation(
    found: Merged, values: Mapping[str, Any], typed: Mapping[str, Any], made: Derivation
) -> None:
    """Divide a global batch over the data ranks; where accumulation is given too, compare."""
    placed, microbatch = found.get(GLOBAL_BATCH), values.get("training.microbatch")
    if placed is None or "training.accumulation" in typed:
        return
    if microbatch is None or values.get("parallelism.world_size") is None:
        made.assumptions.append(
            f"global batch {placed.setting.value} of {placed.place}: not divided, since the "
            "microbatch or the number of ranks is not given"
        )
        return
    degrees = resolve(Parallelism(**_degrees(values)))
    each = microbatch * degrees.dp_replicate * degrees.dp_shard
    accumulation, rest = divmod(placed.setting.value, each)
    given = values.get("training.accumulation", accumulation)
    if rest or not accumulation or given != accumulation:
        times = f" x accumulation {given}" if given != accumulation else ""
        raise InvalidRequestError(
            f"{placed.place} says a global batch of {placed.setting.value}, which is not "
            f"microbatch {microbatch} x {each // microbatch} data ranks{times}",
            field=f"{placed.source.field}.{placed.setting.key}",
        )
    made.values["training.accumulation"] = accumulation
    made.settings.append(
        f"training.accumulation = {accumulation}: {placed.setting.value} of {placed.place} over "
        f"{each // microbatch} data ranks of {microbatch}"
    )


def _degrees(values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = "parallelism."
    given = {key: value for key, value in values.items() if key.startswith(prefix)}
    return {key.removeprefix(prefix): value for key, value in given.items()}
