"""What answers share: the verdict, and at the end what was assumed, left out and stood on."""

from haversack.cli.render.page import BAD, DIM, GOOD, STRONG, WARN, Page
from haversack.estimate import Estimate, EstimateVerdict
from haversack.plan import Plan
from haversack.units import format_bytes

VERDICTS = {
    EstimateVerdict.FITS: ("FITS", GOOD),
    EstimateVerdict.TIGHT: ("TIGHT", WARN),
    EstimateVerdict.DOES_NOT_FIT: ("DOES NOT FIT", BAD),
    EstimateVerdict.UNKNOWN: ("UNKNOWN", WARN),
}


def draw_verdict(page: Page, answer: Estimate) -> None:
    """Draw the verdict of an estimate, or its figure where no verdict was asked for."""
    if answer.verdict in VERDICTS:
        page.headline(*VERDICTS[answer.verdict], answer.reason)
    elif answer.peak is not None:
        allocated = format_bytes(answer.peak.allocated.expected_bytes)
        place = f"{answer.peak_moment} ({answer.peak_phase})"
        page.headline("PEAK", STRONG, f"{allocated} allocated, at {place}; {answer.reason}")
    else:
        steady = format_bytes(answer.steady_bytes)
        sentence = f"{steady} of model states on each rank, not a peak; {answer.reason}"
        page.headline("STEADY", STRONG, sentence)


def closing(page: Page, answer: Estimate | Plan, *how: str) -> None:
    """Draw assumptions, gaps, and what the answer stands on; ``how`` tells of the way to it."""
    page.bullets("Set by files", answer.settings)
    page.bullets("Assumed", answer.assumptions)
    page.bullets("Ignored", answer.ignored_inputs)
    page.bullets("Not modelled", answer.not_modelled)
    if isinstance(answer, Estimate):
        page.bullets("Not validated", answer.not_validated)
    facts = [
        *how,
        f"basis: {answer.basis.name.lower()}",
        f"memory model {answer.model_version}" if answer.model_version else "",
        f"request {answer.request_digest[:12]}" if answer.request_digest else "",
    ]
    page.blank()
    page.line((", ".join(fact for fact in facts if fact), DIM))


def signed_bytes(delta_bytes: int) -> str:
    """Write a change of bytes with its sign."""
    return ("+" if delta_bytes > 0 else "") + format_bytes(delta_bytes)


def figure(size_bytes: int | None) -> str:
    """Write bytes, or nothing for what is not known."""
    return "" if size_bytes is None else format_bytes(size_bytes)


def option_words(option: str) -> str:
    """Write an option of a block shortly: of a policy, how many results it saves and leaves out."""
    saved, _, left_out = option.partition(" without ")
    kind, *operations = saved.split(" ")
    if kind != "selective" or not (operations or left_out):
        return option
    words = f"selective, {_results(operations)} saved"
    return f"{words}, {_count(left_out.split(' '))} left out" if left_out else words


def _results(operations: list[str]) -> str:
    count = _count(operations)
    return f"{count} {'result' if count == 1 else 'results'}"


def _count(operations: list[str]) -> int:
    return sum(len(each.rpartition(":")[2].split(",")) for each in operations)
