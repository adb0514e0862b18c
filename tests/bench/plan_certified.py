"""Plans as the command line answers them: their step run as a whole, planned anew once if apart.

The step runs under fake tensors in this process, as a worker runs it. Kernels take memory inside
themselves that no fake tensor shows: what a profile reserves for it is added to what is seen.
"""

import asyncio
from dataclasses import dataclass, field, replace

from haversack.observed import Observed
from haversack.plan import Plan, PlanRequest
from haversack.run import BlockAction
from haversack.torch import Workload
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan
from haversack_server.planner import certified_plan

Actions = tuple[BlockAction, ...]


@dataclass(frozen=True, slots=True)
class Certified:
    """A certified plan, and how often its request was planned."""

    plan: Plan
    plans: int


@dataclass(slots=True)
class Steps:
    """Whole steps of one workload: each set of actions runs once, however many plans have it."""

    workload: Workload
    seen: dict[Actions, Observed] = field(default_factory=dict)

    def certified(self, request: PlanRequest) -> Certified:
        """Plan a profile that has its reserve, and certify it."""
        assert request.profile is not None
        reserve, made = request.profile.workspace_bytes, list[Plan]()

        async def solve(request: PlanRequest) -> Plan:
            made.append(plan(request))
            return made[-1]

        async def step(planned: Plan) -> Observed:
            seen = self.of(planned.actions)
            return replace(seen, peak_bytes=tuple(each + reserve for each in seen.peak_bytes))

        found = asyncio.run(certified_plan(request, solve, step))
        return Certified(found, len(made))

    def of(self, actions: Actions) -> Observed:
        """Run the step that some actions make."""
        if actions not in self.seen:
            self.seen[actions] = whole_step(self.workload, Plan(actions=actions))
        return self.seen[actions]
