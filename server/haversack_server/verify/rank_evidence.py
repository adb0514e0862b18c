"""What a report says of ranks in words: warnings, what their runs prove, and what they do not."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from haversack.verify import (
    FacetSeverity,
    FacetValue,
    VerifyReport,
    VerifySchedule,
    VerifySharded,
    VerifyVerdict,
)
from haversack_server.verify.shardable import SHARDING_WORDS

_SAME = (
    FacetValue.EQUAL_BITWISE,
    FacetValue.WITHIN_NOISE,
    FacetValue.WITHIN_TOLERANCE,
    FacetValue.NOT_CHECKED,
)


def with_ranks(
    report: VerifyReport, found: VerifySharded, *, notes: Sequence[str], strict: bool
) -> VerifyReport:
    """Add to a report of merged runs what is said of ranks; ``strict`` makes a warning decide."""
    warnings = [
        f"The plain sharded run is not what one process gives: {each.detail}"
        for each in found.against_unsharded
        if each.severity is FacetSeverity.WARNING
    ]
    decides = warnings and strict and report.verdict is VerifyVerdict.EQUIVALENT
    assert report.evidence is not None
    return replace(
        report,
        verdict=VerifyVerdict.DIFFERENT if decides else report.verdict,
        warnings=(*report.warnings, *warnings),
        sharded=found,
        assumptions=(*report.assumptions, *notes),
        evidence=replace(
            report.evidence,
            proves=(*report.evidence.proves, *_proves(found)),
            does_not_prove=(
                *report.evidence.does_not_prove,
                *_does_not_prove(found, report.schedule),
            ),
        ),
    )


def _proves(found: VerifySharded) -> Iterable[str]:
    values = {each.value for each in found.against_unsharded}
    if values - set(_SAME) or values == {FacetValue.NOT_CHECKED}:
        return
    word = SHARDING_WORDS[found.sharding]
    close = FacetValue.WITHIN_TOLERANCE in values
    yield (
        f"For these inputs, {word} on {found.world_size} ranks gives each rank the outputs of one "
        "process, and the mean of the gradients of all"
        + (", within the tolerance of their dtypes" if close else "")
    )


def _does_not_prove(found: VerifySharded, schedule: VerifySchedule) -> Iterable[str]:
    where = "one machine's GPUs" if found.backend == "nccl" else "processes of one CPU"
    yield (
        f"Anything about {'' if found.backend == 'nccl' else 'NCCL, '}streams that overlap, or "
        f"several machines: {found.world_size} ranks on {where} spoke over {found.backend}"
    )
    step = "" if schedule is VerifySchedule.TWO_STEPS else ", or the optimizer's step on shards"
    yield ("Anything about other numbers of ranks, other meshes, types and ways to wrap" + step)
