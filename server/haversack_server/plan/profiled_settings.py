"""Settings of a request that a profiled step cannot follow: refused, or named, with what would do.

Known before anything is profiled, but for what a profile itself says of its numbers. Knows no
bytes.
"""

from dataclasses import fields

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import PlanRequest
from haversack.run import BytesKind, Device
from haversack.spread import spread_of
from haversack.training import Precision, Training

_READ = ("optimizer", "optimizer_kernel", "accumulation", "precision", "reduce_type")
_CASTS = "in its code (model.bfloat16(), torch.autocast)"


def check(request: PlanRequest, *, is_mixed: bool) -> None:
    """Refuse ranks, numbers and a budget that no profiled step has.

    ``is_mixed`` says whether the step is, or will be, profiled in FSDP2's mixed precision. Raises
    what ``spread_of`` raises, and InvalidRequestError or NotSupportedError with the field.
    """
    shards, asked = spread_of(request.parallelism).shards, request.training.precision
    if asked and not is_mixed and (asked is not Precision.FP32_BF16_COMPUTE or shards == 1):
        raise InvalidRequestError(_no_precision(asked), field="training.precision")
    if request.training.reduce_type and not is_mixed:
        raise InvalidRequestError(
            "gradients are reduced in their own type, except in FSDP2's mixed precision; give that "
            "too (--gpus N --fsdp --precision fp32-bf16-compute), or leave it out",
            field="training.reduce_type",
        )
    if request.budget is not None and request.budget.kind is BytesKind.DEVICE:
        raise NotSupportedError(
            "budget.kind: what a device needs beside allocated bytes is not in a profile; give "
            "allocated bytes"
        )


def will_be_mixed(request: PlanRequest) -> bool:
    """Whether a workload is to be profiled in FSDP2's mixed precision: asked for, and sharded.

    Without a budget it is only profiled, and the ranks to plan for may be named later.
    """
    is_asked = request.training.precision is Precision.FP32_BF16_COMPUTE
    spread = spread_of(request.parallelism)
    is_alone = request.budget is None and spread.ranks == 1
    return is_asked and (spread.shards > 1 or is_alone)


def _no_precision(asked: Precision) -> str:
    if asked is Precision.FP32_BF16_COMPUTE:
        return (
            f"{asked.name} is FSDP2's mixed precision, and nothing is sharded here; give FSDP2 on "
            f"several ranks too (--gpus N --fsdp), or leave it out and have the workload cast "
            f"{_CASTS}"
        )
    return (
        f"a profile's step computes in the types of the workload's own code, and {asked.name} "
        f"changes none of them; leave it out, and have the workload cast {_CASTS}"
    )


def ignored(request: PlanRequest) -> tuple[str, ...]:
    """Name settings that the profiled step has decided already, each with what would do."""
    plain, training = Training(), request.training
    given = [
        each.name
        for each in fields(training)
        if each.name not in _READ and getattr(training, each.name) != getattr(plain, each.name)
    ]
    sentence = "the profile is of the step as it ran; change the workload, and profile it anew"
    others = {
        "device: a profile has its own, and the budget limits its bytes": request.device
        != Device(),
        "kernel_profile: a profile has the kernels that ran": bool(request.kernel_profile),
        "fit_expected: a profile's plan has no margin, and fits what is expected anyway": (
            request.fit_expected
        ),
    }
    return (
        *(f"training.{name}: {sentence}" for name in given),
        *(said for said, is_given in others.items() if is_given),
    )
