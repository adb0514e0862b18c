"""Plans for code: a worker profiles the workload, and runs the planned step as one whole.

The workload is built once, in one process of its own, that ends with the call. Supervises and
computes nothing: no torch, no gRPC.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from haversack.basis import Basis
from haversack.errors import InternalError, NotSupportedError
from haversack.observed import Observed, repaired
from haversack.plan import Plan, PlanRequest
from haversack.profile import Profile
from haversack.run import Optimizer, Precision
from haversack_server.bounded import Worker, WorkerLostError, Workers
from haversack_server.execution import JobLimits
from haversack_server.local_place import half_of_memory
from haversack_server.plan import profiled_settings
from haversack_server.plan.certified import better_of, certified, is_to_be_repaired
from haversack_server.plan.orders import Progress, StepOrder, WorkerAnswer, WorkloadOrder, error_of
from haversack_server.verify.admissible import check_workload

log = logging.getLogger(__name__)
Solve = Callable[[PlanRequest], Awaitable[Plan]]
Step = Callable[[Plan], Awaitable[Observed]]


class Planner:
    """Takes requests whose subject is a workload, one at a time.

    ``allow`` and ``path`` are those of Verify's jobs, and so are the limits.
    """

    def __init__(
        self, allow: Sequence[str] = (), path: Sequence[str] = (), limits: JobLimits | None = None
    ) -> None:
        self._allow = tuple(allow)
        self._path = tuple(os.path.abspath(folder) for folder in path)
        limits = limits or JobLimits()
        self._deadline_s = limits.deadline_ns / 1e9
        self._memory_bytes = limits.memory_bytes or half_of_memory()
        self.workers = Workers.none()

    async def close(self) -> None:
        """Kill what runs; its call ends with an error."""
        await self.workers.close()

    async def plan(self, request: PlanRequest, solve: Solve) -> Plan:
        """Profile, plan with ``solve``, certify; cancellation kills the worker.

        Raises InvalidRequestError for a workload that may not run, cannot be built or raises, and,
        before there is a worker, for settings that no profile follows; MissingExtraError without
        torch, NotSupportedError for what cannot be profiled.
        """
        assert request.workload is not None
        check_workload(request.workload, self._allow, "a plan")
        profiled_settings.check(request, is_mixed=profiled_settings.will_be_mixed(request))
        starting = self.workers.worker(
            "plan", deadline_s=self._deadline_s, memory_bytes=self._memory_bytes
        )
        try:
            async with starting as worker:
                return await self._planned(_Workload(worker), request, solve)
        except TimeoutError:
            raise NotSupportedError(
                f"workload: it was not profiled and certified within {self._deadline_s:g} s, and "
                "its process was killed; send a smaller model, or a profile of it"
            ) from None
        except WorkerLostError as lost:
            raise NotSupportedError(f"workload: its process {lost}") from lost

    def _order(self, request: PlanRequest) -> WorkloadOrder:
        assert request.workload is not None
        return WorkloadOrder(
            workload=request.workload,
            allow=self._allow,
            path=self._path,
            optimizer=request.training.optimizer,
            blocks=request.blocks,
            precision=_precision(request),
        )

    async def _planned(self, workload: "_Workload", request: PlanRequest, solve: Solve) -> Plan:
        profile = await workload.profile(self._order(request))
        if request.budget is None:
            return _profiled(profile, request)
        # The worker has stepped the optimizer that was named: it is the profile's own now.
        training = replace(request.training, optimizer=Optimizer.UNSPECIFIED)
        request = replace(request, workload=None, blocks=(), profile=profile, training=training)
        return await certified_plan(
            request, solve, lambda plan: workload.step(StepOrder.of(plan, request))
        )


def _precision(request: PlanRequest) -> Precision:
    """Give the precision that a profile is asked in: FSDP2's mixed one, or the model's own."""
    is_mixed = profiled_settings.will_be_mixed(request)
    return request.training.precision if is_mixed else Precision.UNSPECIFIED


async def certified_plan(request: PlanRequest, solve: Solve, step: Step) -> Plan:
    """Plan a profile, run the plan's step, and plan anew once where prediction and step are apart.

    ``step`` runs a whole step as a plan has it. A plan without actions has nothing to be run.
    """
    assert request.profile is not None
    plan = replace(await solve(request), profile=request.profile)
    if not plan.actions:
        return plan
    observed = await step(plan)
    first = certified(plan, observed)
    if not is_to_be_repaired(first):
        return first
    profile = repaired(request.profile, plan, observed, lowers=True)
    again = replace(await solve(replace(request, profile=profile)), profile=profile)
    if again.actions:
        again = certified(again, await step(again))
    return better_of(first, again)


class _Workload:
    """A workload in its process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def profile(self, order: WorkloadOrder) -> Profile:
        found = await self._ask(order)
        if found.profile is None:
            raise InternalError("a worker sent no profile")
        return found.profile

    async def step(self, order: StepOrder) -> Observed:
        _tell(Progress(what="the planned step", done=0, steps=1))
        found = await self._ask(order)
        if found.observed is None:
            raise InternalError("a worker sent no figures of a step")
        return found.observed

    async def _ask(self, order: WorkloadOrder | StepOrder) -> WorkerAnswer:
        found = await self._worker.ask(order, WorkerAnswer)
        while found.progress is not None:
            _tell(found.progress)
            found = await self._worker.hear(WorkerAnswer)
        if found.failure is not None:
            raise error_of(found.failure)
        return found


def _tell(progress: Progress) -> None:
    """Log how far a plan is; the command line shows it of a server in its own process."""
    counted = {"done": progress.done, "steps": progress.steps}
    log.info("%s", progress.what, extra=counted)


def _profiled(profile: Profile, request: PlanRequest) -> Plan:
    return Plan(
        profile=profile,
        ignored_inputs=profiled_settings.ignored(request),
        basis=Basis.PROFILED,
        not_modelled=profile.not_profiled,
        reason="profiled; no budget was named, so no plan was sought",
    )
