"""What a light install must be able to do; run by ``test_ranges`` in an environment of its own.

Takes the address of a server. Knows the installed package only: no pytest, no server.
"""

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import TypeVar

warnings.simplefilter("error")

import haversack  # noqa: E402 - after the filter, which is the point

Error = TypeVar("Error", bound=haversack.HaversackError)


def refusal(kind: type[Error], call: Callable[[], object]) -> Error:
    """Give the error that a call must end with."""
    try:
        call()
    except kind as refused:
        return refused
    raise AssertionError(f"the call did not end with {kind.__name__}")


def blocking(target: str) -> None:
    """Ask each kind of call once, and fail once."""
    with haversack.connect(target) as client:
        estimate = client.estimate(parameter_count=1000, gpus=4, zero=3)
        assert estimate.steady_bytes == 4000, estimate
        plan = client.plan_candidates(size_bytes=[3, 2, 2], gain=[5, 3, 3], budget_bytes=4)
        assert (plan.status, plan.saved) == (haversack.PlanStatus.OPTIMAL, (1, 2)), plan
        assert len(client.list_workloads().workloads) > 5
        unknown = refusal(
            haversack.InvalidRequestError, lambda: client.verify(workload="no such thing")
        )
        assert unknown.field == "workload.name", unknown
        refusal(haversack.NotFoundError, lambda: client.cancel_verify("nobody"))


async def awaiting(target: str) -> None:
    """Get the same answer from the twin."""
    async with haversack.connect_async(target) as client:
        answer = await client.estimate(haversack.EstimateRequest(parameter_count=1000))
        assert answer.steady_bytes == 16_000, answer


def light() -> None:
    """Nothing heavy came along, and a server in this process is refused in one sentence."""
    heavy = {"numpy", "numba", "torch", "haversack_server"} & set(sys.modules)
    assert not heavy, heavy
    missing = refusal(haversack.MissingExtraError, haversack.connect)
    assert "pip install 'haversack[server]'" in str(missing), missing


if __name__ == "__main__":
    blocking(sys.argv[1])
    asyncio.run(awaiting(sys.argv[1]))
    light()
