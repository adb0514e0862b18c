"""The fields of a training run, from keywords.

Knows which keyword fills which field, and one sentence for each value that cannot. Knows nothing of
ranges and combinations, which the nouns check, nor of what a model's file means, which the server
reads.
"""

import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from haversack import checks, reading, spelling, units
from haversack.errors import InvalidRequestError, Violation, check
from haversack.keywords import RunOptions
from haversack.parallelism import Parallelism, Sharding
from haversack.reading import refuse
from haversack.run import (
    LARGEST_DOCUMENT,
    Attention,
    BlockAction,
    Budget,
    BytesKind,
    Device,
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Recompute,
    StateBytes,
    Training,
    Unit,
)

_WHICH_MODEL = "give a Hugging Face config.json or its folder (nothing is downloaded)"
_ONE_UNIT = '{"name": "a", "parameter_count": 1000}'


def run_fields(run: RunOptions, actions: tuple[BlockAction, ...] = ()) -> dict[str, Any]:
    """Make every field of a training run, and raise what is wrong in any of them at once."""
    parts: dict[str, Callable[[RunOptions], object]] = {
        "state_bytes": _state_bytes,
        "units": _units,
        "documents": _documents,
        "training": lambda run: _training(run, actions),
        "parallelism": _parallelism,
        "device": lambda run: Device(memory_bytes=_device_memory(run)),
        "kernel_profile": lambda run: spelling.text(
            run.get("kernel_profile", ""), "kernel_profile"
        ),
        "budget": _budget,
    }
    fields: dict[str, Any] = {"parameter_count": _whole(run, "parameter_count")}
    found: list[Violation] = []
    for name, make in parts.items():
        try:
            fields[name] = make(run)
        except InvalidRequestError as wrong:
            found += wrong.violations
    check(found)
    return fields


def _documents(run: RunOptions) -> tuple[Document, ...]:
    model = run.get("model")
    if model is None:
        return ()
    field = "documents[0].text"
    if isinstance(model, Mapping):
        name, text = "config.json", json_of(model, field)
    else:
        path = _model_path(model, field)
        name = path.name
        text = reading.read_text(
            path, field=field, most_bytes=LARGEST_DOCUMENT, wanted=_WHICH_MODEL
        )
    return (Document(format=DocumentFormat.HF_CONFIG, name=name, text=text),)


def _device_memory(run: RunOptions) -> int | None:
    """Take the usable bytes of a device; a bare 80 is a slip for 80GiB."""
    field = "device.memory_bytes"
    size = spelling.size(run.get("gpu_memory"), field)
    if size is not None and 0 < size < units.MIB:
        refuse(f"{size} bytes are no device's memory; write 80GiB for gibibytes", field)
    return size


def _model_path(model: object, field: str) -> Path:
    """Find the file: a folder's config.json, or the path as it is."""
    if not isinstance(model, str | PathLike):
        refuse(f"{type(model).__name__} is no path; {_WHICH_MODEL}", field)
    if not str(model):
        refuse(f"the path is empty; {_WHICH_MODEL}", field)
    try:
        path = Path(model)
        return path / "config.json" if path.is_dir() else path
    except (OSError, TypeError) as wrong:  # longer than the system takes, or a path of bytes
        refuse(f"not a path: {getattr(wrong, 'strerror', None) or wrong}; {_WHICH_MODEL}", field)


def _units(run: RunOptions) -> tuple[Unit, ...]:
    given = run.get("units")
    if given is None:
        return ()
    listed = spelling.sequence(given, "units")
    if not listed:
        refuse(f"the list is empty; give units such as {_ONE_UNIT}", "units")
    return tuple(_unit(f"units[{place}]", unit) for place, unit in enumerate(listed))


def _unit(path: str, given: object) -> Unit:
    if isinstance(given, Unit):
        return given
    unit = spelling.table(
        given, path, needed=("parameter_count",), others=("name",), example=_ONE_UNIT
    )
    name = spelling.text(unit.get("name", ""), f"{path}.name")
    return Unit(name=name, parameter_count=checks.plain(unit["parameter_count"]))


def _state_bytes(run: RunOptions) -> StateBytes | None:
    given = run.get("state_bytes")
    if given is None or isinstance(given, StateBytes):
        return given
    listed = given.split(",") if isinstance(given, str) else given
    figures = spelling.sequence(listed, "state_bytes")
    names = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    if len(figures) != len(names):
        refuse(
            f"{len(figures)} figures; give three, of parameters, gradients and optimizer,"
            " such as 4GiB,4GiB,8GiB",
            "state_bytes",
        )
    sizes = {
        name: spelling.size(figure, f"state_bytes.{name}")
        for name, figure in zip(names, figures, strict=True)
    }
    return StateBytes(**{name: value or 0 for name, value in sizes.items()})


def _whole(run: RunOptions, keyword: str) -> Any:
    return checks.plain(run.get(keyword))


def _training(run: RunOptions, actions: tuple[BlockAction, ...] = ()) -> Training:
    return Training(
        microbatch=_whole(run, "microbatch"),
        seq=_whole(run, "seq"),
        accumulation=_whole(run, "accumulation"),
        precision=spelling.named(Precision, run.get("precision"), "training.precision"),
        optimizer=spelling.named(Optimizer, run.get("optimizer"), "training.optimizer"),
        attention=spelling.named(Attention, run.get("attention"), "training.attention"),
        recompute=spelling.named(Recompute, run.get("recompute"), "training.recompute"),
        actions=actions,
    )


def _parallelism(run: RunOptions) -> Parallelism:
    return Parallelism(
        world_size=_whole(run, "gpus"),
        dp_replicate=_whole(run, "dp_replicate"),
        tp=_whole(run, "tp"),
        pp=_whole(run, "pp"),
        cp=_whole(run, "cp"),
        ep=_whole(run, "ep"),
        sequence_parallel=_sequence_parallel(run),
        sharding=_sharding(run),
        prefetch_units=_whole(run, "prefetch_units"),
    )


def _sequence_parallel(run: RunOptions) -> bool | None:
    """Take what is given; a variation that leaves it out changes nothing."""
    given = run.get("sequence_parallel")
    return None if given is None else spelling.flag(given, "parallelism.sequence_parallel")


def _sharding(run: RunOptions) -> Sharding:
    field = "parallelism.sharding"
    zero, fsdp = _whole(run, "zero"), spelling.flag(run.get("fsdp", False), field)
    if fsdp and zero is not None:
        refuse(
            f"zero {checks.shortly(zero)} and fsdp both say how model states are sharded; give one",
            field,
        )
    if fsdp:
        return Sharding.FSDP2
    if zero is None:
        return Sharding.UNSPECIFIED
    if type(zero) is not int or not 0 <= zero <= 3:
        refuse(f"{checks.shortly(zero)} is no ZeRO stage; give 0, 1, 2 or 3", field)
    return (Sharding.REPLICATED, Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)[zero]


def _budget(run: RunOptions) -> Budget | None:
    given = run.get("budget")
    kind = spelling.named(BytesKind, run.get("budget_kind"), "budget.kind")
    if kind and (given is None or isinstance(given, Budget)):
        refuse("a kind alone limits nothing; give the budget's bytes beside it", "budget.kind")
    if given is None or isinstance(given, Budget):
        return given
    size_bytes = spelling.size(given, "budget.bytes")
    return None if size_bytes is None else Budget(bytes=size_bytes, kind=kind)


def json_of(value: Mapping[str, Any], field: str) -> str:
    """Write a mapping as JSON, or say why it cannot be."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as wrong:
        refuse(f"it cannot be written as JSON: {wrong}; give plain values", field)
