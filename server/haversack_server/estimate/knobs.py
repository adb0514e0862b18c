"""The settings that people turn, one variation for each value: what is asked when none is named.

Values that the run has already are left out, and so are those that are not open to it, such as a tp
that divides no heads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest, WhatIf
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Attention, Loss, Optimizer, Precision, Recompute, Training
from haversack_server.memory.degrees import Degrees, resolve
from haversack_server.memory.variations import device_of, overlaid

_SHARDINGS = {
    "zero 0": Sharding.REPLICATED,
    "zero 1": Sharding.ZERO_1,
    "zero 2": Sharding.ZERO_2,
    "zero 3": Sharding.ZERO_3,
    "fsdp": Sharding.FSDP2,
    "fsdp version 1": Sharding.FSDP1,
}
_DEGREES = (2, 4, 8)


def varied(request: EstimateRequest, what_if: WhatIf) -> EstimateRequest:
    """Lay a variation over its request; of what that asks beside, only collectives are asked too.

    Raises InvalidRequestError where the two do not go together.
    """
    collectives = EstimateQuestion.COLLECTIVES
    questions = collectives if collectives in request.questions else EstimateQuestion.BRIEF
    return replace(
        request,
        training=overlaid(request.training, what_if.training),
        parallelism=overlaid(request.parallelism, what_if.parallelism),
        device=overlaid(request.device, device_of(what_if)),
        what_ifs=(),
        questions=(questions,),
        measurements=(),
        oom=None,
    )


def knobs(request: EstimateRequest, *, has_experts: bool) -> Iterator[WhatIf]:
    """Yield the variations of a request, in no order."""
    for what_if in (*_of_training(request), *_of_parallelism(request, has_experts)):
        try:
            changed = varied(request, what_if)
        except InvalidRequestError:
            continue  # the two settings do not go together, such as a stage without sharding
        if changed.training != request.training or changed.parallelism != request.parallelism:
            yield what_if


def _of_training(request: EstimateRequest) -> Iterator[WhatIf]:
    training = request.training
    microbatch, seq = training.microbatch or 1, training.seq or 0
    for size in (microbatch // 2, microbatch * 2):
        if size:
            yield WhatIf(name=f"microbatch {size}", training=Training(microbatch=size))
    for size in (seq // 2, seq * 2):
        if size:
            yield WhatIf(name=f"seq {size}", training=Training(seq=size))
    yield from _choices(training)


@dataclass(frozen=True, slots=True)
class _Default:
    """What a setting stands for where it is not given."""

    name: str
    values: tuple[int, ...]
    default: int


# The paged ones and the variants of one kind are left to those who name them.
_OPTIMIZERS = (
    Optimizer.ADAMW, Optimizer.ADAMW_FOREACH, Optimizer.ADAMW_8BIT, Optimizer.ADAFACTOR,
    Optimizer.LION, Optimizer.MUON, Optimizer.SGD_MOMENTUM, Optimizer.SGD,
)  # fmt: skip
_CHOICES = (
    _Default("recompute", (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL), Recompute.NONE),
    _Default("attention", (Attention.FLASH, Attention.EAGER), Attention.FLASH),
    _Default("optimizer", _OPTIMIZERS, Optimizer.ADAMW),
    _Default("loss", (Loss.CHUNKED, Loss.FUSED_LINEAR), Loss.UNSPECIFIED),
)


def _choices(training: Training) -> Iterator[WhatIf]:
    for setting in _CHOICES:
        given = getattr(training, setting.name) or setting.default
        for value in setting.values:
            if value == given or (setting.name == "recompute" and training.actions):
                continue
            words = value.name.lower().replace("_", "-")  # type: ignore[attr-defined]
            yield WhatIf(
                name=f"{setting.name} {words}",
                training=Training(**{setting.name: value}),  # type: ignore[arg-type]
            )


def _precisions(request: EstimateRequest, degrees: Degrees) -> Iterator[WhatIf]:
    """Yield the other recipes of numbers; which one is the run's follows from its sharding."""
    fsdp2 = degrees.sharding is Sharding.FSDP2
    default = Precision.FP32_BF16_COMPUTE if fsdp2 else Precision.BF16_FP32_MASTER
    for precision in Precision:
        if precision and precision is not (request.training.precision or default):
            words = precision.name.lower().replace("_", "-")
            yield WhatIf(name=f"precision {words}", training=Training(precision=precision))


def _of_parallelism(request: EstimateRequest, has_experts: bool) -> Iterator[WhatIf]:
    degrees = resolve(request.parallelism)
    yield from _precisions(request, degrees)
    if degrees.dp_replicate * degrees.dp_shard > 1:
        for name, sharding in _SHARDINGS.items():
            if sharding is not degrees.sharding:
                yield WhatIf(name=name, parallelism=Parallelism(sharding=sharding))
    yield from _of_axes(degrees, has_experts)
    yield from _of_host(request.parallelism)
    if degrees.tp > 1 and not degrees.sequence_parallel:
        together = Parallelism(sequence_parallel=True)
        yield WhatIf(name="sequence parallel", parallelism=together)
    if degrees.sharding in (Sharding.FSDP1, Sharding.FSDP2):
        yield from _of_units(request.parallelism)


def _of_units(parallelism: Parallelism) -> Iterator[WhatIf]:
    """Yield when units are gathered and freed; ZeRO 3 has buckets instead."""
    if parallelism.reshard_after_forward is not False:
        kept = Parallelism(reshard_after_forward=False)
        yield WhatIf(name="units kept after forward", parallelism=kept)
    depth = parallelism.prefetch_units
    for units in {0, 1, 2} - {1 if depth is None else depth}:
        yield WhatIf(name=f"prefetch {units} units", parallelism=Parallelism(prefetch_units=units))


def _of_host(parallelism: Parallelism) -> Iterator[WhatIf]:
    """Yield what may live on the host instead."""
    if not parallelism.offload_optimizer:
        moved = Parallelism(offload_optimizer=True)
        yield WhatIf(name="offload optimizer", parallelism=moved)
    if not parallelism.offload_parameters:
        moved = Parallelism(offload_optimizer=True, offload_parameters=True)
        yield WhatIf(name="offload all", parallelism=moved)


def _of_axes(degrees: Degrees, has_experts: bool) -> Iterator[WhatIf]:
    """Yield other degrees; the ranks stay, and those beside the axis become fewer."""
    for degree in _DEGREES:
        axes = {
            "tp": Parallelism(tp=degree),
            "cp": Parallelism(cp=degree),
            "pp": Parallelism(pp=degree),
        } | ({"ep": Parallelism(ep=degree)} if has_experts else {})
        for axis, changed in axes.items():
            if degree != getattr(degrees, axis) and degrees.world_size % degree == 0:
                yield WhatIf(name=f"{axis} {degree}", parallelism=changed)
