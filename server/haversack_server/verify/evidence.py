"""Says in words what the runs of a job prove, what they do not, and what was assumed."""

from collections.abc import Iterable, Sequence

from haversack.verify import (
    Facet,
    FacetResult,
    FacetValue,
    SavedValues,
    VerifyEvidence,
    VerifyRequest,
    VerifySchedule,
)
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.verdict import STRONG_FACETS

_EQUAL = frozenset({FacetValue.EQUAL_BITWISE, FacetValue.WITHIN_NOISE, FacetValue.WITHIN_TOLERANCE})
# Counts are held against what is expected, memory against a saving, time against nothing: what
# they say is not that two plain runs agree and the checkpointed run does not.
_COMPARED = STRONG_FACETS | {Facet.SIDE_EFFECTS}
_STEPS = {
    VerifySchedule.ONE_MICROBATCH: "one forward and its backward",
    VerifySchedule.TWO_MICROBATCHES: "two forwards, then their backwards",
    VerifySchedule.TWO_STEPS: "two steps with the optimizer between",
    VerifySchedule.BACKWARD_IN_THREAD: "one forward, and its backward in a helper thread",
}


def evidence(
    runs: Outcomes, facets: Sequence[FacetResult], schedule: VerifySchedule, request: VerifyRequest
) -> VerifyEvidence:
    """Say what is proved, and what is not."""
    return VerifyEvidence(
        proves=tuple(_proves(runs, facets, schedule)),
        does_not_prove=tuple(_does_not_prove(runs, schedule, request)),
    )


def _proves(
    runs: Outcomes, facets: Sequence[FacetResult], schedule: VerifySchedule
) -> Iterable[str]:
    equal = [_word(found.facet) for found in facets if found.value in _EQUAL]
    different = [found.facet for found in facets if found.value is FacetValue.DIFFERENT]
    changed = [_word(facet) for facet in different if facet in _COMPARED]
    if equal:
        yield (
            f"For this input and this seed, {_STEPS[schedule]}: with activation checkpointing "
            f"{_listed(equal)} are what they are without it, as far as each facet says"
        )
    if changed:
        yield (
            f"Two plain runs agree where the checkpointed run differs: activation checkpointing "
            f"is what changes {_listed(changed)}"
        )
    if runs.control is not None:
        yield _control(runs)
    if runs.watched is not None and any(f.value is FacetValue.INCONCLUSIVE for f in facets):
        yield from _replayed(runs.watched.saved)


def _replayed(saved: Sequence[SavedValues]) -> Iterable[str]:
    """Say what replays show of themselves where two plain runs are no measure."""
    compared = [each for each in saved if each.compared_count]
    other = [each.region for each in compared if each.different_count]
    if other:
        yield (
            f"Within one checkpointed run, replays saved other values than their forwards in "
            f"{len(other)} of {len(compared)} regions: {_listed(other)}"
        )
    elif compared:
        yield (
            f"Within one checkpointed run, the replays of all {len(compared)} regions saved the "
            "values of their forwards"
        )


def _control(runs: Outcomes) -> str:
    rows = runs.control.rows if runs.control else ()
    if not rows:
        return (
            "The callback ran in both plain runs too, and a plain run without it has equal outputs "
            "and gradients: the change that it makes is not the cause alone"
        )
    return (
        f"The callback ran in both plain runs too; a plain run without it differs in {rows[0].name}"
        ", so the change that it makes acts without activation checkpointing as well"
    )


def _does_not_prove(
    runs: Outcomes, schedule: VerifySchedule, request: VerifyRequest
) -> Iterable[str]:
    yield "Anything about other inputs, shapes, seeds or versions of torch"
    if request.device in ("", "cpu"):
        yield (
            "Anything about a GPU: its kernels, their order, its random generators and autograd's "
            "device threads; a CPU run is no evidence for one GPU or for several"
        )
    elif (request.device_count or 1) == 1:
        yield "Anything about several devices or their collectives"
    else:
        yield "Anything about collectives, or about more GPUs than these of one process"
    if schedule is not VerifySchedule.TWO_STEPS:
        yield "Anything about optimizer steps, or about losses and histories used a step later"
    if schedule is not VerifySchedule.TWO_MICROBATCHES:
        yield "Anything about a second forward before the backward, as pipelines have it"
    else:
        yield (
            "Anything about what differs from one microbatch to the next: both are given the same "
            "arguments, so that a mask of the second is that of the first"
        )
    yield (
        "That nothing else is touched: state in C extensions and globals of libraries are not "
        "looked at; of sockets, and of files outside the working folder, it is seen that they are "
        "opened, not what goes into them"
    )
    yield (
        "Anything about regions inside torch.compile, or made by other functions than "
        "torch.utils.checkpoint.checkpoint: they are not seen"
    )
    if runs.plain.gradients_all_zero and not runs.plain.raised:
        yield "Much about gradients: all of them are zero here, so that wrong ones may be zero too"


def assumptions(runs: Outcomes, request: VerifyRequest) -> tuple[str, ...]:
    """Say what the job took for granted: weights of its own, and what a region is."""
    said = [f"Every run has the weights of {request.weights}"] if request.weights else []
    said += runs.plain.notes
    wrapped = runs.checkpointed.wrapped
    if wrapped:
        names = _listed(list(wrapped))
        by_plan = request.plan is not None
        how = "haversack.torch.apply runs for the plan" if by_plan else "Verify wrapped"
        count = len(wrapped)
        regions = "The region is 1 module" if count == 1 else f"Regions are {count} modules"
        said.append(f"{regions} that {how}: {names}")
        entered = {each.region for each in runs.checkpointed.regions}
        if missed := [name for name in wrapped if name not in entered and not by_plan]:
            said.append(f"The step never calls the forward of {_listed(missed)}: nothing is known")
            said[-1] += " of these"
    else:
        said.append("Regions are the calls of checkpoint that the model makes itself; plain runs")
        said[-1] += " call their functions directly"
    if runs.control is not None:
        said.append(
            "The callback ran after the forward and before the backward in every run but the "
            "control"
        )
    if runs.traced is not None and runs.traced.first_difference is None:
        said.append(
            "A traced run, whose replays run to their end, shows no operation that differs: what "
            "differs comes from stopping early, or from outside the regions"
        )
    if runs.watched is not None:
        said.extend(_of_probes(runs.watched, runs.checkpointed))
    return tuple(said)


def _of_probes(watched: Outcome, checkpointed: Outcome) -> Iterable[str]:
    yield (
        "Random sources, saved values and state of regions come from a further run under probes, "
        "which decides nothing but what has a tolerance, and whether plain runs are made again; "
        "memory from it and from a second plain run"
    )
    yield from watched.probe_notes
    if watched.raised is not None and checkpointed.raised is None:
        yield (
            f"The checkpointed run raised under probes, in {watched.raised.part}, and not without "
            f"them: {watched.raised}; they tell what they saw before"
        )


def _word(facet: Facet) -> str:
    return facet.name.lower().replace("_", " ").replace("rng", "random states")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
