"""A plan, certified: its step run as one whole under fake tensors, beside the prediction."""

from haversack import checks
from haversack.errors import InvalidRequestError, check
from haversack.observed import certificate_of
from haversack.parallelism import Parallelism
from haversack.plan import Certificate, Plan
from haversack.spread import is_same_step, spread_in_words
from haversack.torch.given import check_is_workload, check_plan
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

    Nothing is computed and no memory taken, but by recurrent layers, as ``profile`` says.
    ``microbatches`` are those of one optimizer step, as the plan was made for
    (``training.accumulation``). ``parallelism`` is the plan's own if none is
    given: on several ranks the step is that of rank 0 under ``DistributedDataParallel`` or
    ``fully_shard``, on a process group that moves nothing; another one than that of a profile's
    plan is refused. What is above its prediction, or more than 2 percent below, is among the
    ``findings``; ``holds`` says whether the peak is within the budget. Raises
    ``InvalidRequestError`` for a workload without optimizer, what ``apply`` raises for a plan of
    another model, and what ``profile`` raises.
    """
    check_is_workload(workload)
    check_plan(plan)
    check(checks.integer("microbatches", microbatches, least=1))
    if workload.optimizer is None:
        raise InvalidRequestError(
            "a whole step ends with an optimizer's; give the workload one, such as "
            "torch.optim.AdamW(model.parameters())",
            field="workload.optimizer",
        )
    ranks = _ranks(plan, parallelism)
    seen = whole_step(workload, plan, microbatches=microbatches, parallelism=ranks)
    return certificate_of(plan, seen)


def _ranks(plan: Plan, asked: Parallelism | None) -> Parallelism | None:
    own = plan.parallelism or Parallelism()
    if asked is None:
        return plan.parallelism
    # A described model's plan has no fingerprint, and says nothing of its ranks.
    is_of_a_profile = plan.parallelism is not None or plan.model_fingerprint
    if is_of_a_profile and not is_same_step(own, asked):
        raise InvalidRequestError(
            f"the plan is for {spread_in_words(own)}, and {spread_in_words(asked)} is asked for; "
            "leave it out, or plan for that",
            field="parallelism",
        )
    return asked
