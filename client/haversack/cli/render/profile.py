"""A profile on a page: blocks that cost the same, with a row for each way to run them."""

from haversack.cli.render.page import DIM, GOOD, Column, Page
from haversack.cli.render.ranges import compressed
from haversack.cli.render.shared import option_words
from haversack.profile import OptionTable, Profile
from haversack.units import format_bytes, format_ns


def draw_profile(page: Page, profile: Profile, output: str | None, verbose: bool) -> None:
    """Draw a profile; ``verbose`` spells policies out and says what was not looked at."""
    blocks = [block for block in profile.blocks if block.fingerprint]
    numbers = profile.precision.name.lower().replace("_", "-")
    mixed = f" in {numbers}" if profile.precision else ""
    written = f", written to {output}" if output else ""
    page.headline("PROFILED", GOOD, f"{len(blocks)} blocks on {profile.device}{mixed}{written}")
    _draw_standing(page, profile)
    page.heading("Blocks", "in the order of the forward; figures of each block")
    page.table(
        [
            Column("blocks"),
            Column("option"),
            *(Column(name, figures=True) for name in ("kept", "forward", "backward", "extra")),
        ],
        [row for table, names in _groups(profile) for row in _rows(table, names, verbose)],
    )
    if verbose:
        page.bullets("Not looked at", profile.not_profiled)


def _draw_standing(page: Page, profile: Profile) -> None:
    state = profile.optimizer_state_bytes
    rows = [
        ("parameters", sum(block.parameter_bytes for block in profile.blocks)),
        ("gradients", sum(block.gradient_bytes for block in profile.blocks)),
        ("optimizer", state or 0),
        ("buffers, arguments", profile.standing_bytes),
        ("held by the caller", profile.held_by_caller_bytes),
    ]
    page.blank()
    page.table(
        [Column(style=DIM), Column(figures=True)],
        [(name, format_bytes(size)) for name, size in rows if size],
    )


def _groups(profile: Profile) -> list[tuple[OptionTable, list[str]]]:
    """Put blocks that follow one another with the same table together."""
    found: list[tuple[int, list[str]]] = []
    for block in profile.blocks:
        if found and found[-1][0] == block.table:
            found[-1][1].append(block.name)
        else:
            found.append((block.table, [block.name]))
    return [(profile.tables[table], names) for table, names in found]


def _rows(table: OptionTable, names: list[str], verbose: bool) -> list[tuple[str, ...]]:
    label = ", ".join(compressed(names))
    return [
        (
            label if row == 0 else "",
            option if verbose else option_words(option),
            format_bytes(table.retained_bytes[row]),
            format_bytes(table.forward_peak_bytes[row]),
            format_bytes(table.backward_peak_bytes[row]),
            format_ns(table.extra_ns[row]),
        )
        for row, option in enumerate(table.option)
    ]
