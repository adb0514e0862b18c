"""The ranks of a sharded Verify job on a page: what each held, and what passed between them."""

from collections.abc import Iterable

from haversack.cli.render.page import Column, Page
from haversack.units import format_bytes
from haversack.verify import CollectiveCount, VerifyRank, VerifySharded


def draw_sharded(page: Page, found: VerifySharded) -> None:
    """Draw how a run was spread, rank by rank; and the run on one process beside it."""
    spread = f"{found.sharding.name.lower()} on {found.world_size} ranks over {found.backend}"
    page.heading("Ranks", spread)
    headings = ("parameters", "plain peak", "checkpointed peak", "gathers", "reductions")
    page.table(
        [Column("rank"), *(Column(name, figures=True) for name in headings)],
        [_row(rank) for rank in found.ranks],
    )
    if found.prediction_method:
        page.bullets("Predicted peaks", [*_predicted(found.ranks), found.prediction_method])
    planned = list(_planned(found.ranks))
    if planned:
        page.bullets("A whole step of the plan", planned)
    page.bullets(
        "The plain sharded run against one process",
        [each.detail for each in found.against_unsharded],
    )


def _row(rank: VerifyRank) -> tuple[str, ...]:
    return (
        str(rank.rank),
        format_bytes(rank.parameter_bytes),
        format_bytes(rank.plain_peak_bytes),
        format_bytes(rank.checkpointed_peak_bytes),
        _counted(rank.collectives, "gather"),
        _counted(rank.collectives, "reduction"),
    )


def _predicted(ranks: Iterable[VerifyRank]) -> Iterable[str]:
    for rank in ranks:
        plain, replayed = rank.predicted_plain_peak_bytes, rank.predicted_checkpointed_peak_bytes
        if plain is not None and replayed is not None:
            yield (
                f"rank {rank.rank}: {format_bytes(plain)} plain, "
                f"{format_bytes(replayed)} checkpointed"
            )


def _planned(ranks: Iterable[VerifyRank]) -> Iterable[str]:
    for rank in ranks:
        if rank.planned_peak_bytes is not None:
            yield f"rank {rank.rank}: {format_bytes(rank.planned_peak_bytes)} at its peak"


def _counted(collectives: Iterable[CollectiveCount], kind: str) -> str:
    """Give the count of a step, both counts where they differ."""
    own = [each for each in collectives if each.kind == kind]
    plain = sum(each.plain_count for each in own)
    checkpointed = sum(each.checkpointed_count for each in own)
    return str(plain) if plain == checkpointed else f"{plain} plain, {checkpointed} checkpointed"
