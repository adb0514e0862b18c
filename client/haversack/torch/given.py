"""What callers hand in, refused in one sentence where it is something else.

A plan's file in place of a plan, a model in place of a workload: what a first script gets wrong.
"""

from os import PathLike

from haversack import checks
from haversack.errors import InvalidRequestError
from haversack.plan import Plan
from haversack.torch.workload import Workload


def check_plan(plan: object) -> None:
    """Refuse what is no plan; a file of one is to be read before."""
    if isinstance(plan, Plan):
        return
    is_file = isinstance(plan, str | PathLike)
    given = checks.shortly(plan) if is_file else f"a {type(plan).__name__}"
    raise InvalidRequestError(
        f"{given} is no Plan; give the answer of client.plan, or haversack.read_plan of a file",
        field="plan",
    )


def check_is_workload(workload: object) -> None:
    """Refuse what is no workload, such as a model alone."""
    if not isinstance(workload, Workload):
        raise InvalidRequestError(
            f"a {type(workload).__name__} is no Workload; give one of haversack.torch, such as "
            "Workload(model, args=(batch,))",
            field="workload",
        )
