"""What a step was seen to need, moment by moment: the certificate, and the profile repaired.

The same whether the step ran under fake tensors or on a device. Runs nothing and solves nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from haversack.basis import Basis
from haversack.plan import Certificate, CertifiedPhase, PeakAt, Plan
from haversack.profile import Profile
from haversack.units import format_bytes

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
PHASES = (FORWARD, BACKWARD, OPTIMIZER)
APART_PERMILLE = 20  # further apart than this, prediction and execution are not the same thing
_BELOW = "measured below the prediction"


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Highest allocated bytes of each moment, as columns: phase, block that ran, bytes.

    What runs between two blocks has a name in parentheses, the optimizer's step has none.
    """

    phase: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    peak_bytes: tuple[int, ...] = ()
    basis: Basis = Basis.SIMULATED
    method: str = ""

    def moments(self) -> Iterator[tuple[str, str, int]]:
        """Give phase, block and bytes, moment by moment."""
        yield from zip(self.phase, self.block, self.peak_bytes, strict=True)

    def of_phase(self, name: str) -> int:
        """Give the highest bytes of a phase; 0 where the step has none."""
        return max((size for phase, _, size in self.moments() if phase == name), default=0)


def certificate_of(plan: Plan, observed: Observed) -> Certificate:
    """Put what was seen beside what a plan predicts."""
    phase, block, peak = max(observed.moments(), key=lambda moment: moment[2])
    predicted = _predicted_phases(plan)
    phases = tuple(
        CertifiedPhase(phase=name, predicted_bytes=predicted.get(name, 0), observed_bytes=seen)
        for name in PHASES
        if (seen := observed.of_phase(name))
    )
    budget = plan.budget.allocated_bytes if plan.budget is not None else None
    return Certificate(
        basis=observed.basis,
        observed_peak_bytes=peak,
        observed_at=PeakAt(block=block, phase=phase, moment=f"{phase} {block or 'step'}"),
        holds=budget is None or peak <= budget,
        phases=phases,
        findings=(*_findings(plan, peak, phases), *_over(peak, budget)),
        method=observed.method,
    )


def repaired(profile: Profile, plan: Plan, observed: Observed, *, lowers: bool = False) -> Profile:
    """Give the profile whose predictions for this plan are what was seen.

    What forward or backward need beyond their prediction is kept free all the time; what the
    optimizer's step needs, while it runs. ``lowers`` takes off what a step needs less than the sum
    of its parts; another plan may not, so it is for those who look again.
    """
    predicted = {(each.phase, each.block): each.peak_bytes for each in plan.moments}
    beyond = {OPTIMIZER: 0, FORWARD: 0, BACKWARD: 0}
    for phase, block, seen in observed.moments():
        # In another plan another block may be the highest, so the most of any block counts.
        beyond[phase] = max(beyond[phase], seen - predicted.get((phase, block), seen))
    whole = max(observed.peak_bytes) - (plan.predicted_peak_bytes or 0)
    reserve = max(beyond[FORWARD], beyond[BACKWARD])
    if lowers and whole < 0:
        reserve = whole
    step = max(0, beyond[OPTIMIZER] - reserve)
    return replace(
        profile,
        workspace_bytes=profile.workspace_bytes + reserve,
        optimizer_step_bytes=profile.optimizer_step_bytes + step,
    )


def calibrated(
    profile: Profile, plan: Plan, observed: Observed, figures: Iterable[tuple[str, int, int]]
) -> Profile:
    """Give the profile that keeps free what was measured above the prediction for this plan.

    Its basis is MEASURED if there is any; else it stays. ``figures`` are names with what was
    measured and what was predicted, in bytes: a note says which are below, and replaces the one of
    an earlier calibration. What blocks ran on, which ``device`` says, is not what was measured on.
    """
    found = repaired(profile, plan, observed)
    notes = tuple(each for each in profile.notes if not each.startswith(_BELOW))
    return replace(
        found,
        basis=profile.basis if found == profile else Basis.MEASURED,
        notes=(*notes, *_unused(figures)),
    )


def _unused(figures: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """Say which measured figures are below their predictions, and so change no plan."""
    below = [
        f"{name}, {format_bytes(seen)} of {format_bytes(predicted)} predicted"
        for name, seen, predicted in figures
        if seen < predicted
    ]
    if not below:
        return ()
    return (
        f"{_BELOW}, and used for nothing, since another plan may need what this one's step did "
        f"not: {'; '.join(below)}",
    )


def _predicted_phases(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in plan.moments:
        found[each.phase] = max(each.peak_bytes, found.get(each.phase, 0))
    return found


def is_apart(predicted_bytes: int, observed_bytes: int) -> bool:
    """Whether execution is above its prediction, or 2 percent of it below."""
    below = (predicted_bytes - observed_bytes) * 1000
    return observed_bytes > predicted_bytes or below > APART_PERMILLE * predicted_bytes


def _findings(plan: Plan, peak: int, phases: tuple[CertifiedPhase, ...]) -> Iterator[str]:
    whole = plan.predicted_peak_bytes
    pairs = [("the step", whole, peak)] if whole is not None else []
    pairs += [(each.phase, each.predicted_bytes, each.observed_bytes) for each in phases]
    for name, predicted, seen in pairs:
        # A phase that is not the highest limits nothing, unless it is above its prediction.
        limits = name == "the step" or seen > predicted
        if predicted and limits and is_apart(predicted, seen):
            where = "above" if seen > predicted else "below"
            yield (
                f"{name}: {format_bytes(seen)} when executed, "
                f"{abs(seen - predicted) / predicted:.1%} {where} the {format_bytes(predicted)} "
                "predicted"
            )


def _over(peak: int, budget: int | None) -> Iterator[str]:
    if budget is not None and peak > budget:
        yield (
            f"the executed peak of {format_bytes(peak)} is above the budget of "
            f"{format_bytes(budget)}"
        )
