"""Why memory ran out: which tensor has the size of the failed allocation, and what broke.

PyTorch prints the bytes that it asks the driver for: 2 MiB for anything up to 1 MiB, 20 MiB for
anything below 10 MiB, else the size rounded up to 2 MiB (c10/cuda/CUDACachingAllocator.h:
kSmallBuffer, kLargeBuffer, kRoundLarge). So small requests tell nothing of a tensor.
"""

from collections.abc import Iterator, Sequence

from haversack.estimate import Peak
from haversack.questions import (
    OomCause,
    OomCauseKind,
    OomExplanation,
    OomMatch,
    OomMatchKind,
    OutOfMemory,
)
from haversack.units import MIB, format_bytes
from haversack_server.estimate.oom_causes import Expected, causes
from haversack_server.estimate.oom_tensors import FLOAT_BYTES, Tensor, logit_columns, tensors
from haversack_server.estimate.oom_text import ReadError, read_error
from haversack_server.memory.model_run import ModelRun

SMALL_REQUESTS = {2 * MIB: "up to 1 MiB", 20 * MIB: "from 1 MiB to 10 MiB"}
ROUNDING_BYTES = 2 * MIB
MOST_MATCHES = 8


def explain(
    given: OutOfMemory, run: ModelRun, peak: Peak, usable_bytes: int | None
) -> OomExplanation:
    """Explain an error in a run of a described model."""
    error = read_error(given)
    matches = tuple(_matches(error, run))[:MOST_MATCHES]
    named = matches[0].implies if matches else ""
    found = causes(error.figures, Expected(peak, usable_bytes), other_setting=named)
    return OomExplanation(
        summary=_summary(error.figures, matches, found),
        figures=error.figures,
        matches=matches,
        causes=found,
    )


def explain_alone(given: OutOfMemory) -> OomExplanation:
    """Explain an error by its own figures, where no peak of the run is known."""
    figures = read_error(given).figures
    found = causes(figures, None, other_setting="")
    unknown = "the sizes of this run's tensors are not known"
    reasons = found[0].reason if found else "its figures alone name no cause"
    return OomExplanation(summary=f"{unknown}; {reasons}", figures=figures, causes=found)


def _matches(error: ReadError, run: ModelRun) -> Iterator[OomMatch]:
    """Yield tensors of the requested size: those of the run, then those of another setting."""
    requested = error.figures.requested_bytes or 0
    if requested in SMALL_REQUESTS:
        return
    found = [each for each in tensors(run) if _has_size(each.bytes, requested, error)]
    found.sort(key=lambda each: (bool(each.implies), not _is_made_in(each, error.figures.phase)))
    for each in found:
        yield _match(each)
    if not found:
        yield from _longer(run, requested, error)


def _is_made_in(tensor: Tensor, phase: str) -> bool:
    """Tell whether a tensor is made where the job was, which may be said in many words."""
    return not phase or any(word in phase.lower() for word in tensor.phases)


def _has_size(size: int, requested: int, error: ReadError) -> bool:
    """Tell whether a tensor is printed as what was requested, rounded by the allocator or not."""
    half = error.half_digit_bytes
    rounded = -(-size // ROUNDING_BYTES) * ROUNDING_BYTES
    return size - half <= requested <= rounded + half


def _match(tensor: Tensor) -> OomMatch:
    return OomMatch(
        tensor=tensor.name,
        kind=OomMatchKind.IMPLIED if tensor.implies else OomMatchKind.EXACT,
        bytes=tensor.bytes,
        formula=tensor.formula,
        phases=tensor.phases,
        implies=tensor.implies,
    )


def _longer(run: ModelRun, requested: int, error: ReadError) -> Iterator[OomMatch]:
    """Find how many tokens would make logits of that size, if more than the settings give."""
    rows, columns = run.shape.rows, logit_columns(run)
    for width in sorted({FLOAT_BYTES, run.shape.compute_bytes}, reverse=True):
        tokens = _tokens(requested, columns * width, rows, error)
        if tokens <= rows:
            continue
        yield OomMatch(
            tensor=f"logits in {'fp32' if width == FLOAT_BYTES else 'the compute type'}",
            kind=OomMatchKind.IMPLIED,
            bytes=tokens * columns * width,
            formula=f"{tokens:,} tokens x {columns:,} logits of a token x {width} bytes",
            phases=("loss", "backward"),
            implies=f"this rank ran {tokens:,} tokens at once, {tokens / rows:.2f} times the "
            f"{rows:,} of the settings: packing, padding or a truncation that is missing",
        )


def _tokens(requested: int, token_bytes: int, rows: int, error: ReadError) -> int:
    """Count the tokens of that size: whole microbatches where the printed digits allow it."""
    whole = round(requested / (token_bytes * rows)) * rows
    if _has_size(whole * token_bytes, requested, error):
        return whole
    return requested // token_bytes


def _summary(figures: OutOfMemory, matches: Sequence[OomMatch], found: Sequence[OomCause]) -> str:
    """Put the first match and the first cause into a sentence."""
    requested = figures.requested_bytes or 0
    size = format_bytes(requested)
    if requested in SMALL_REQUESTS:
        what = f"{size} is what PyTorch asks for any tensor {SMALL_REQUESTS[requested]}"
    elif not matches:
        what = f"no tensor of this run has {size}, as it is described"
    elif matches[0].kind is OomMatchKind.EXACT:
        what = f"{size} is {matches[0].tensor} ({matches[0].formula})"
    else:
        what = f"{size} would be {matches[0].tensor}: {matches[0].implies}"
    reasons = [each.reason for each in found if each.kind is not OomCauseKind.OTHER_SETTING]
    return f"{what}; {reasons[0]}" if reasons else what
