"""A plan, certified: its step run as one whole under fake tensors, beside the prediction."""

from haversack.errors import InvalidRequestError
from haversack.observed import certificate_of
from haversack.parallelism import Parallelism
from haversack.plan import Certificate, Plan
from haversack.torch.whole_step import whole_step
from haversack.torch.workload import Workload


def certify(
    workload: Workload,
    plan: Plan,
    *,
    microbatches: int = 1,
    parallelism: Parallelism | None = None,
) -> Certificate:
    """Run a planned step, loss and optimizer included, and compare its peaks with the plan's.

    Nothing is computed and no memory taken. ``microbatches`` are those of one optimizer step, as
    the plan was made for (``training.accumulation``), and so is ``parallelism``: the step is then
    that of rank 0 under ``fully_shard``, on a process group that moves nothing. What is above its
    prediction, or more than 2 percent below, is among the ``findings``; ``holds`` says whether the
    peak is within the budget. Raises ``InvalidRequestError`` for a workload without optimizer, what
    ``apply`` raises for a plan of another model, and what ``profile`` raises.
    """
    if workload.optimizer is None:
        raise InvalidRequestError(
            "a whole step ends with an optimizer's; give the workload one, such as "
            "torch.optim.AdamW(model.parameters())",
            field="workload.optimizer",
        )
    seen = whole_step(workload, plan, microbatches=microbatches, parallelism=parallelism)
    return certificate_of(plan, seen)
