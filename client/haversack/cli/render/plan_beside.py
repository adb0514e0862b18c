"""What stands beside a plan on its page: known ways to choose, classes of ranks, the next bytes."""

from rich.text import Text

from haversack.cli.render.page import BAD, DIM, GOOD, Column, Page
from haversack.plan import Plan, PlanStatus
from haversack.units import format_bytes, format_ns


def draw_baselines(page: Page, answer: Plan) -> None:
    """Draw what other ways to choose would need and cost, the plan first."""
    if not answer.baselines:
        return
    page.heading("Beside other ways to choose")
    saved = sum(action.option == "save" for action in answer.actions)
    ways = [
        (each.name, each.peak_bytes, each.fits, each.extra_ns, each.saved_count)
        for each in answer.baselines
    ]
    if answer.predicted_peak_bytes is not None:
        ways.insert(0, ("this plan", answer.predicted_peak_bytes, True, answer.extra_ns, saved))
    page.table(
        [
            Column("way"),
            *(Column(name, figures=True) for name in ("peak", "extra time", "blocks saved")),
            Column(),
        ],
        [
            (
                name,
                format_bytes(peak_bytes),
                format_ns(extra_ns),
                str(count),
                Text("fits", GOOD) if fits else Text("over the budget", BAD),
            )
            for name, peak_bytes, fits, extra_ns, count in ways
        ],
    )


def draw_ranks(page: Page, answer: Plan) -> None:
    """Draw the plan of each class of equal ranks."""
    if not answer.ranks:
        return
    page.heading("Ranks", "each stage by its own plan; a step waits for the slowest")
    page.table(
        [
            Column("class"),
            Column("ranks", figures=True),
            *(Column(name, figures=True) for name in ("floor", "peak", "recomputed", "extra time")),
            Column(style=DIM),
        ],
        [
            (
                each.name,
                str(each.rank_count),
                format_bytes(each.floor_bytes),
                "none"
                if each.predicted_peak_bytes is None
                else format_bytes(each.predicted_peak_bytes),
                str(each.recomputed_count),
                format_ns(each.extra_ns),
                "" if each.status is PlanStatus.OPTIMAL else "not proven",
            )
            for each in answer.ranks
        ],
    )


def reading(answer: Plan) -> list[tuple[str, str]]:
    """Write the knee, the price of the next GiB, and the cost of equal treatment, as facts."""
    rows = []
    found = answer.reading
    if found is not None and found.knee_budget_bytes is not None:
        knee = f"{format_bytes(found.knee_budget_bytes)}, with {format_ns(found.knee_cost)}"
        rows.append(("knee", f"{knee} of extra time"))
    if found is not None and found.next_gib_spares_ns:
        rows.append(("next GiB", f"spares {format_ns(found.next_gib_spares_ns)} a step"))
    if answer.equal_treatment_ns is not None:
        cost = format_ns(answer.equal_treatment_ns)
        rows.append(("alike", f"treating equal blocks alike costs {cost} a step"))
    return rows
