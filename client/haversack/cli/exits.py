"""Exit codes: what a script, a scheduler or a CI job learns without reading a word."""

import enum

from haversack.errors import HaversackError, InvalidRequestError, NotFoundError
from haversack.estimate import Estimate, EstimateVerdict
from haversack.plan import Plan, PlanStatus
from haversack.verify import VerifyReport, VerifyVerdict


class Exit(enum.IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    INVALID = 2
    TIGHT = 3
    NO = 4
    UNKNOWN = 5
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "fits, optimal, feasible, equivalent; or no verdict was asked",
    Exit.FAILED: "failed: a missing extra, no server, not supported, a job that failed",
    Exit.INVALID: "invalid input: an option, a file, a request",
    Exit.TIGHT: "tight: the limit lies inside the margin of the peak",
    Exit.NO: "does not fit, infeasible, different",
    Exit.UNKNOWN: "unknown, inconclusive",
    Exit.INTERRUPTED: "interrupted",
}

_ESTIMATE = {
    EstimateVerdict.UNSPECIFIED: Exit.OK,
    EstimateVerdict.FITS: Exit.OK,
    EstimateVerdict.TIGHT: Exit.TIGHT,
    EstimateVerdict.DOES_NOT_FIT: Exit.NO,
    EstimateVerdict.UNKNOWN: Exit.UNKNOWN,
}
_PLAN = {
    PlanStatus.UNSPECIFIED: Exit.UNKNOWN,
    PlanStatus.OPTIMAL: Exit.OK,
    PlanStatus.FEASIBLE: Exit.OK,
    PlanStatus.INFEASIBLE: Exit.NO,
}
_VERIFY = {
    VerifyVerdict.UNSPECIFIED: Exit.UNKNOWN,
    VerifyVerdict.EQUIVALENT: Exit.OK,
    VerifyVerdict.DIFFERENT: Exit.NO,
    VerifyVerdict.INCONCLUSIVE: Exit.UNKNOWN,
    VerifyVerdict.FAILED: Exit.FAILED,
}


def of_answer(answer: Estimate | Plan | VerifyReport) -> Exit:
    """Give the exit code of an answer: its verdict or status."""
    if isinstance(answer, Estimate):
        return _ESTIMATE[answer.verdict]
    if isinstance(answer, Plan) and answer.certificate is not None:
        return _PLAN[answer.status] if answer.certificate.holds else Exit.NO
    if isinstance(answer, Plan):
        return _PLAN[answer.status]
    return _VERIFY[answer.verdict]


def of_error(error: HaversackError) -> Exit:
    """Give the exit code of an error: a name that is not known is invalid input too."""
    invalid = isinstance(error, InvalidRequestError | NotFoundError)
    return Exit.INVALID if invalid else Exit.FAILED
