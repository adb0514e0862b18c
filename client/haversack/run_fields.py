"""The fields of a training run, from keywords.

Knows which keyword fills which field, and one sentence for each value that cannot. Knows nothing of
ranges and combinations, which the nouns check, nor of what a model's file means, which the server
reads.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from haversack import checks, spelling, units
from haversack.documents import documents_of
from haversack.errors import InvalidRequestError, Violation, check
from haversack.keywords import RunOptions
from haversack.parallelism import Parallelism, Sharding
from haversack.reading import refuse
from haversack.run import (
    Attention,
    BlockAction,
    Budget,
    BytesKind,
    Device,
    Loss,
    NumberType,
    Optimizer,
    Precision,
    Recompute,
    StateBytes,
    Training,
    Unit,
)
from haversack.tuning_fields import finetuning_of

_COUNTED = re.compile(r"(?P<count>[1-9]\d{0,6})\s*[xX*]\s*(?P<name>.*)")
_ONE_UNIT = '{"name": "a", "parameter_count": 1000}'


def run_fields(run: RunOptions, actions: tuple[BlockAction, ...] = ()) -> dict[str, Any]:
    """Make every field of a training run, and raise what is wrong in any of them at once."""
    parts: dict[str, Callable[[RunOptions], object]] = {
        "state_bytes": _state_bytes,
        "units": _units,
        "documents": documents_of,
        "training": lambda run: _training(run, actions),
        "parallelism": _parallelism,
        "device": _device,
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


def _device(run: RunOptions) -> Device:
    return Device(name=_counted_device(run)[1], memory_bytes=_device_memory(run))


def _counted_device(run: RunOptions) -> tuple[int | None, str]:
    """Part "8xh100-80gb" into a number of devices and a name; a name alone has none."""
    field = "device.name"
    given = run.get("device")
    if given is None:
        return None, ""
    text = spelling.text(given, field).strip()
    counted = _COUNTED.fullmatch(text)
    name = counted["name"] if counted else text
    if not name:
        refuse("the name is empty; give one such as h100-80gb, or 8xh100-80gb", field)
    return (int(counted["count"]), name) if counted else (None, name)


def _gpus(run: RunOptions) -> Any:
    """Take the number of ranks, as such or in front of the device."""
    gpus, counted = _whole(run, "gpus"), _counted_device(run)[0]
    if gpus is not None and counted is not None and gpus != counted:
        refuse(
            f"{checks.shortly(gpus)} ranks, but {counted} devices; make them agree",
            "parallelism.world_size",
        )
    return counted if gpus is None else gpus


def _device_memory(run: RunOptions) -> int | None:
    """Take the usable bytes of a device; a bare 80 is a slip for 80GiB."""
    field = "device.memory_bytes"
    size = spelling.size(run.get("gpu_memory"), field)
    if size is not None and 0 < size < units.MIB:
        refuse(f"{size} bytes are no device's memory; write 80GiB for gibibytes", field)
    return size


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
        target_seq=_whole(run, "target_seq"),
        finetuning=finetuning_of(run),
        accumulation=_whole(run, "accumulation"),
        precision=spelling.named(Precision, run.get("precision"), "training.precision"),
        reduce_type=spelling.named(NumberType, run.get("reduce_type"), "training.reduce_type"),
        optimizer=spelling.named(Optimizer, run.get("optimizer"), "training.optimizer"),
        optimizer_in_backward=_flag(run, "optimizer_in_backward", "training.optimizer_in_backward"),
        attention=spelling.named(Attention, run.get("attention"), "training.attention"),
        recompute=spelling.named(Recompute, run.get("recompute"), "training.recompute"),
        loss=spelling.named(Loss, run.get("loss"), "training.loss"),
        actions=actions,
    )


def _parallelism(run: RunOptions) -> Parallelism:
    moved, (reshards, reshard_ranks) = _offload(run), _resharding(run)
    return Parallelism(
        world_size=_gpus(run),
        dp_replicate=_whole(run, "dp_replicate"),
        tp=_whole(run, "tp"),
        pp=_whole(run, "pp"),
        cp=_whole(run, "cp"),
        ep=_whole(run, "ep"),
        virtual_stages=_whole(run, "virtual_stages"),
        expert_tp=_whole(run, "expert_tp"),
        sequence_parallel=_flag(run, "sequence_parallel", "parallelism.sequence_parallel"),
        sharding=_sharding(run),
        prefetch_units=_whole(run, "prefetch_units"),
        reshard_after_forward=reshards,
        reshard_ranks=reshard_ranks,
        gradient_as_bucket_view=_flag(
            run, "gradient_as_bucket_view", "parallelism.gradient_as_bucket_view"
        ),
        offload_optimizer=moved.optimizer,
        offload_parameters=moved.parameters,
        ranks_per_node=_whole(run, "ranks_per_node"),
    )


def _resharding(run: RunOptions) -> tuple[bool | None, int | None]:
    """Read what FSDP2 does after a unit's forward: whether it is resharded, or to how many."""
    given = _whole(run, "reshard_after_forward")
    if given is None or isinstance(given, bool):
        return given, None
    if type(given) is not int:
        refuse(
            f"{checks.shortly(given)} says nothing of resharding; give True, False or a number of "
            "ranks",
            "parallelism.reshard_after_forward",
        )
    return None, given


class _Offload(NamedTuple):
    """What lives on the host; None leaves it as it is."""

    optimizer: bool | None = None
    parameters: bool | None = None


_OFFLOADS = {
    "none": _Offload(False, False),
    "optimizer": _Offload(True),
    "all": _Offload(True, True),
}


def _offload(run: RunOptions) -> _Offload:
    """Read the word; a variation that leaves it out changes nothing."""
    field = "parallelism.offload_optimizer"
    given = run.get("offload")
    if given is None:
        return _Offload()
    word = spelling.text(given, field).strip().lower()
    if word not in _OFFLOADS:
        choices = "optimizer, all (parameters too) or none"
        refuse(f"{checks.shortly(given)} is not what is offloaded; give {choices}", field)
    return _OFFLOADS[word]


def _flag(run: RunOptions, keyword: str, field: str) -> bool | None:
    """Take what is given; a variation that leaves it out changes nothing."""
    given: Any = run.get(keyword)
    return None if given is None else spelling.flag(given, field)


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
