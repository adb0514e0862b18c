"""A plan's own profile, with what a real step of the plan needed kept free: to plan with again.

What ``haversack.torch.calibrate`` does with a step that it measured, from figures that were read
elsewhere. Runs nothing and solves nothing.
"""

from collections.abc import Sequence
from os import PathLike

from haversack.answer_files import read_plan, read_profile_and_ranks
from haversack.basis import Basis
from haversack.errors import InvalidRequestError, Violation, check
from haversack.observed import PHASES, Observed, calibrated
from haversack.parallelism import Parallelism
from haversack.plan import MomentPeak, Plan
from haversack.profile import Profile
from haversack.run import Measurement
from haversack.spread import is_same_step, spread_in_words, spread_of
from haversack.units import format_bytes

_SECOND_STEP = "step 2 "  # as an estimate spells the phases, and ``Measured.measurements()``


def subject_of(
    given: Profile | Plan | str | PathLike[str] | None,
    measurements: Sequence[Measurement],
    parallelism: Parallelism,
) -> tuple[Profile | None, Parallelism]:
    """Give the profile to plan with, and the ranks: a plan's own where none were named.

    With measurements a plan's profile is calibrated by what its step was measured to need. Raises
    InvalidRequestError for measurements without a plan that predicted them, on those ranks.
    """
    if not measurements:
        profile, own = _unmeasured(given)
        return profile, own if parallelism == Parallelism() else parallelism
    if given is None or isinstance(given, Profile):
        raise InvalidRequestError(
            "a figure is of the step of one plan; give that plan, with its profile, as the profile",
            field="measurements",
        )
    plan = given if isinstance(given, Plan) else read_plan(given, field="profile")
    own = plan.parallelism or Parallelism()
    if parallelism not in (Parallelism(), own):
        _check_ranks(own, parallelism)
    return _calibrated(plan, measurements), own


def _unmeasured(
    given: Profile | Plan | str | PathLike[str] | None,
) -> tuple[Profile | None, Parallelism]:
    if given is None or isinstance(given, Profile):
        return given, Parallelism()
    if isinstance(given, Plan):
        return _of_plan(given), given.parallelism or Parallelism()
    return read_profile_and_ranks(given)


def _check_ranks(own: Parallelism, asked: Parallelism) -> None:
    if not is_same_step(own, asked):
        raise InvalidRequestError(
            f"the figures are of a plan for {spread_in_words(own)}, and {spread_in_words(asked)} "
            "is asked for; leave it out, or measure a step of a plan for that",
            field="parallelism",
        )


def _calibrated(plan: Plan, measurements: Sequence[Measurement]) -> Profile:
    """Keep free what was above the prediction; figures below it are noted, and nothing else."""
    profile = _of_plan(plan)
    check(_violations(plan, profile, measurements))
    held = [(_place(plan, each), each.allocated_bytes or 0) for each in measurements]
    observed = Observed(
        phase=tuple(at.phase for at, _ in held),
        block=tuple(at.block for at, _ in held),
        peak_bytes=tuple(seen for _, seen in held),
        basis=Basis.MEASURED,
    )
    figures = (
        (f"the {_phase(each) or 'step'}", seen, at.peak_bytes)
        for each, (at, seen) in zip(measurements, held, strict=True)
    )
    return calibrated(profile, plan, observed, figures)


def _of_plan(plan: Plan) -> Profile:
    phases = {each.phase for each in plan.moments}
    if plan.profile is None or not phases or not phases <= set(PHASES):
        raise InvalidRequestError(
            "the plan has no profile, or predicts no step of it; give one that was made for code "
            "or for a profile, as `haversack plan -o` writes it",
            field="profile",
        )
    return plan.profile


def _violations(
    plan: Plan, profile: Profile, measurements: Sequence[Measurement]
) -> list[Violation]:
    phases, least = {each.phase for each in plan.moments}, _least_bytes(plan, profile)
    found, ranks = [], spread_of(plan.parallelism or Parallelism()).ranks
    for place, each in enumerate(measurements):
        path, seen = f"measurements[{place}]", each.allocated_bytes
        if each.phase and _phase(each) not in phases:
            known = ", ".join(phase for phase in PHASES if phase in phases)
            sentence = f"{each.phase[:60]!r} is no phase of a plan; give {known}, or leave it out"
            found.append(Violation(f"{path}.phase", sentence))
        if each.rank >= ranks:
            known = "0, its only one" if ranks == 1 else f"one from 0 to {ranks - 1}"
            sentence = f"{each.rank} is none of the plan's ranks; give {known}"
            found.append(Violation(f"{path}.rank", sentence))
        if seen is None:
            sentence = "a plan of code is of allocated bytes; give those, such as peak=11.8GiB"
            found.append(Violation(f"{path}.allocated_bytes", sentence))
        elif seen < least:
            sentence = (
                f"{format_bytes(seen)} is less than the {format_bytes(least)} of states and inputs "
                "that stand all the time; give the highest allocated bytes of the plan's step"
            )
            found.append(Violation(f"{path}.allocated_bytes", sentence))
    return found


def _least_bytes(plan: Plan, profile: Profile) -> int:
    """Count what stands at every moment of the plan's step.

    Never more than its lowest moment: the plan may be for a smaller optimizer than the profile's.
    """
    states = sum(each.parameter_bytes for each in profile.blocks)
    states += profile.optimizer_state_bytes or 0
    states //= spread_of(plan.parallelism or Parallelism()).shards
    return min(states + profile.standing_bytes, *(each.peak_bytes for each in plan.moments))


def _phase(measurement: Measurement) -> str:
    return measurement.phase.removeprefix(_SECOND_STEP)


def _place(plan: Plan, measurement: Measurement) -> MomentPeak:
    """Give the moment that a figure is held against: the highest that is predicted of its phase."""
    phase = _phase(measurement)
    there = [each for each in plan.moments if not phase or each.phase == phase]
    return max(there, key=lambda each: each.peak_bytes)
