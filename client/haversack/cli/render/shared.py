"""What every answer ends with: what was assumed, what was left out, what the answer stands on."""

from haversack.cli.render.page import DIM, Page
from haversack.estimate import Estimate
from haversack.plan import Plan
from haversack.units import format_bytes


def closing(page: Page, answer: Estimate | Plan, *how: str) -> None:
    """Draw assumptions, gaps, and what the answer stands on; ``how`` tells of the way to it."""
    page.bullets("Assumed", answer.assumptions)
    page.bullets("Ignored", answer.ignored_inputs)
    page.bullets("Not modelled", answer.not_modelled)
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
