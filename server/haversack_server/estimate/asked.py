"""Which questions an estimate answers beside verdict, peak, phases, terms and ranks."""

from collections.abc import Iterator

from haversack.estimate import EstimateRequest
from haversack.questions import EstimateQuestion

# What people who ask nothing in particular want to see.
UNLESS_TOLD = frozenset(
    {
        EstimateQuestion.TIMELINE,
        EstimateQuestion.ADVICE,
        EstimateQuestion.MIN_GPUS,
        EstimateQuestion.MAX_MICROBATCH,
    }
)
_OF_ANY_SUBJECT = frozenset({EstimateQuestion.TIMELINE, EstimateQuestion.BRIEF})


def asked(request: EstimateRequest) -> frozenset[EstimateQuestion]:
    """Give the questions of a request; none of them if it wants the brief answer."""
    questions = frozenset(request.questions) or UNLESS_TOLD
    return questions - {EstimateQuestion.BRIEF}


def unanswered(request: EstimateRequest) -> Iterator[str]:
    """Name the questions that were put and that need a described model, for other subjects."""
    for question in sorted(set(request.questions) - _OF_ANY_SUBJECT):
        yield f"questions: {question.name} needs a described model (documents)"
