"""A plan's own profile, with what a real step of the plan needed kept free: to plan with again.

What ``haversack.torch.calibrate`` does with a step that it measured, from figures that were read
elsewhere. Runs nothing and solves nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

from haversack.answer_files import read_plan, read_profile
from haversack.basis import Basis
from haversack.errors import InvalidRequestError, Violation, check
from haversack.observed import PHASES, Observed, repaired
from haversack.plan import Plan
from haversack.profile import Profile
from haversack.run import Measurement

_SECOND_STEP = "step 2 "  # as an estimate spells the phases, and ``Measured.measurements()``


def profile_of(
    given: Profile | Plan | str | PathLike[str] | None, measurements: Sequence[Measurement]
) -> Profile | None:
    """Give the profile to plan with: a plan's is calibrated by what its step was measured to need.

    Raises InvalidRequestError for measurements without a plan that predicted them.
    """
    if not measurements:
        if isinstance(given, Plan):
            return _of_plan(given)
        return given if given is None or isinstance(given, Profile) else read_profile(given)
    if given is None or isinstance(given, Profile):
        raise InvalidRequestError(
            "a figure is of the step of one plan; give that plan, with its profile, as the profile",
            field="measurements",
        )
    plan = given if isinstance(given, Plan) else read_plan(given)
    profile = _of_plan(plan)
    check(_violations(plan, measurements))
    observed = Observed(
        phase=tuple(_place(plan, each)[0] for each in measurements),
        block=tuple(_place(plan, each)[1] for each in measurements),
        peak_bytes=tuple(each.allocated_bytes or 0 for each in measurements),
        basis=Basis.MEASURED,
    )
    return replace(repaired(profile, plan, observed), basis=Basis.MEASURED)


def _of_plan(plan: Plan) -> Profile:
    if plan.profile is None or not plan.moments:
        raise InvalidRequestError(
            "the plan has no profile, or predicts no step of it; give one that was made for code, "
            "such as `haversack plan --workload -o` writes it",
            field="profile",
        )
    return plan.profile


def _violations(plan: Plan, measurements: Sequence[Measurement]) -> list[Violation]:
    phases = {each.phase for each in plan.moments}
    found = []
    for place, each in enumerate(measurements):
        path = f"measurements[{place}]"
        if each.allocated_bytes is None:
            sentence = "a plan of code is of allocated bytes; give those, such as peak=11.8GiB"
            found.append(Violation(f"{path}.allocated_bytes", sentence))
        if each.phase and _phase(each) not in phases:
            known = ", ".join(phase for phase in PHASES if phase in phases)
            sentence = f"{each.phase[:60]!r} is no phase of a plan; give {known}, or leave it out"
            found.append(Violation(f"{path}.phase", sentence))
    return found


def _phase(measurement: Measurement) -> str:
    return measurement.phase.removeprefix(_SECOND_STEP)


def _place(plan: Plan, measurement: Measurement) -> tuple[str, str]:
    """Give the moment that a figure is held against: the highest that is predicted of its phase."""
    phase = _phase(measurement)
    there = [each for each in plan.moments if not phase or each.phase == phase]
    highest = max(there, key=lambda each: each.peak_bytes)
    return highest.phase, highest.block
