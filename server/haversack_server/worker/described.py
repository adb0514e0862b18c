"""What Estimate says of a rank, where a workload's model carries its own description.

A model of transformers has its ``config``: asked as a run of ``fully_shard`` on this many ranks,
without an optimizer's step, Estimate's timeline gives the peak of forward and backward. It is in
closed form and knows nothing of the workload's code.
"""

from typing import Any

import torch
from torch import nn

from haversack.basis import Basis
from haversack.errors import NotSupportedError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding, WrapPolicy
from haversack.questions import EstimateQuestion
from haversack.run import (
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack.torch import Workload
from haversack.verify import VerifyRequest, VerifySchedule, VerifyWorld
from haversack_server.estimate.answer import estimate
from haversack_server.verify.rank_predictions import Predicted
from haversack_server.worker.values import flatten

_CPU_KERNELS = "hf-cpu"
_PHASES = ("step 1 forward", "step 1 loss", "step 1 backward")
_WHOLE = (torch.int64, torch.int32)
_PRECISIONS = {torch.float32: Precision.FP32, torch.bfloat16: Precision.BF16}


def predict(workload: Workload, request: VerifyRequest, world: VerifyWorld) -> Predicted:
    """Ask Estimate for the peaks of all ranks, which are alike. Raises HaversackError."""
    _check_plain(request, world)
    model = _described(workload.model)
    kernels = "" if request.device.startswith("cuda") else _CPU_KERNELS
    peaks = [
        _peak_bytes(_asked(model, workload, world, recompute, kernels))
        for recompute in (Recompute.NONE, Recompute.FULL)
    ]
    return Predicted(
        plain_bytes=[peaks[0]] * world.size,
        checkpointed_bytes=[peaks[1]] * world.size,
        basis=Basis.ANALYTIC,
        method="Estimate's timeline of the model's own configuration, forward and backward of a "
        f"first step, less the rank's parameters; kernels of the profile {kernels or 'default'}",
    )


def _check_plain(request: VerifyRequest, world: VerifyWorld) -> None:
    """Refuse what a description says nothing of."""
    others = {
        "DistributedDataParallel, whose buckets are not counted here": world.sharding
        is not Sharding.FSDP2,
        f"the schedule {request.schedule.name}": request.schedule
        not in (VerifySchedule.UNSPECIFIED, VerifySchedule.ONE_MICROBATCH),
        "regions that the request names": bool(request.regions) or request.plan is not None,
    }
    for what, is_asked in others.items():
        if is_asked:
            raise NotSupportedError(f"a description says nothing of {what}")


def _described(model: Any) -> Any:
    """Find the outermost module that has a configuration of a causal language model."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    for module in modules:
        config = getattr(module, "config", None)
        if hasattr(config, "to_json_string") and type(module).__name__.endswith("ForCausalLM"):
            return module
    raise NotSupportedError("the model carries no description that Estimate reads")


def _asked(
    model: Any, workload: Workload, world: VerifyWorld, recompute: Recompute, kernels: str
) -> EstimateRequest:
    microbatch, seq = _tokens(workload)
    precision = _PRECISIONS.get(next(model.parameters()).dtype)
    if precision is None:
        raise NotSupportedError("a description is read in float32 and bfloat16 only")
    return EstimateRequest(
        documents=(
            Document(
                format=DocumentFormat.HF_CONFIG, text=model.config.to_json_string(use_diff=False)
            ),
        ),
        training=Training(
            microbatch=microbatch,
            seq=seq,
            optimizer=Optimizer.SGD,
            precision=precision,
            recompute=recompute,
        ),
        parallelism=Parallelism(
            world_size=world.size, sharding=Sharding.FSDP2, wrap=WrapPolicy.LAYERS
        ),
        kernel_profile=kernels,
        questions=(EstimateQuestion.BRIEF,),
    )


def _tokens(workload: Workload) -> tuple[int, int]:
    """Give the shape of the first argument that is tokens: whole numbers in two dimensions."""
    for value in flatten((workload.args, dict(workload.kwargs)), "given").values():
        if isinstance(value, torch.Tensor) and value.dtype in _WHOLE and value.dim() == 2:
            return int(value.shape[0]), int(value.shape[1])
    raise NotSupportedError("no argument of the workload is tokens of shape (batch, seq)")


def _peak_bytes(request: EstimateRequest) -> int:
    answer = estimate(request)
    phases = {phase.name: phase.peak_bytes for phase in answer.phases}
    if not all(name in phases for name in ("init", *_PHASES)):
        raise NotSupportedError(answer.reason or "Estimate has no peak of this model")
    return max(phases[name] for name in _PHASES) - phases["init"]
