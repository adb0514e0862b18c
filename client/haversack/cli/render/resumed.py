"""A resume job on a page: what was saved and by whom, and the steps after the stop."""

from haversack.cli.render.page import Column, Page
from haversack.units import format_bytes
from haversack.verify import FacetValue, LeftOutState, ResumedStep, VerifyResumed


def draw_resumed(page: Page, found: VerifyResumed) -> None:
    """Draw the files of a run, and the losses with and without the stop."""
    form = found.saved_as.name.lower()
    page.heading(
        "Saved, and gone on with",
        f"{form} files of {found.saved_size} ranks after {found.steps_before} steps, read by "
        f"{found.resumed_size}",
    )
    page.indented(f"{format_bytes(found.checkpoint_bytes)} hold {', '.join(found.kept)}")
    if found.missing:
        page.indented(f"asked for, and not in the files: {', '.join(found.missing)}")
    headings = ("loss, not stopped", "loss, gone on")
    page.table(
        [Column("step"), *(Column(name, figures=True) for name in headings)],
        [_row(step) for step in found.steps],
    )
    if found.left_out:
        page.heading("Left out in turn", "each in a run of its own, which decides nothing")
        page.table(
            [Column("kind"), Column("its own facet"), Column("next steps")],
            [_left_out(each) for each in found.left_out],
        )


def _left_out(state: LeftOutState) -> tuple[str, str, str]:
    names = (state.facet.name, state.value.name, state.next_steps.name)
    kind, own, following = (name.lower().replace("_", " ") for name in names)
    if state.next_steps is FacetValue.RAISED_ONLY_RESUMED:
        return kind, "-", "the training cannot go on without it"
    return kind, own, following


def _row(step: ResumedStep) -> tuple[str, str, str]:
    return str(step.step), _spelled(step.uninterrupted_loss), _spelled(step.resumed_loss)


def _spelled(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.8g}"
