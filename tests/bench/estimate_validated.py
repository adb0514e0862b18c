"""The settings that measured runs cover, by kernel profile: the list that ships, and its page.

Made by rule, from what the measured runs were asked with. No measured byte is read, so the list
stands before the ends of intervals are fitted; ``--fit`` writes it first.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.estimate_bounds import described, dump, fitted_to, real_ranks

from haversack_server.memory import kernel_profile
from haversack_server.memory.validated import ALONE, AT_LEAST

PAGE = Path(__file__).parents[2] / "docs" / "validated-settings.md"
INTRO = """# Validated settings

Written by `python -m tests.bench.estimate --fit`, unedited. For each kernel profile the settings
that its measured runs have. The list is made by rule from what those runs were asked with, never
from what they measured, and before the ends of intervals are fitted to them. Each setting stands
for itself: two that were measured apart count as covered together. Sizes and numbers of ranks are
no settings, since every term is written in them; but one rank is no evidence of several.

- A setting that is known not to be modelled has the verdict UNKNOWN and no figure; `not_modelled`
  names it.
- Any other answer outside of the list has its figures, names each setting under `not_validated`,
  and its ends are no nearer than the profile's own margin (11 %). So have all answers under the
  profiles without a measured run: {without}.
- Inside the list the ends are those of the kind of run, fitted to its measured cases
  ([notes](benchmarks/estimate-notes.md#bounds)). What is claimed of Megatron-LM's dense runs is
  narrower still: [claims](estimate-claims.md).

A plan names them too, among its assumptions, and is made for the same ends.
"""


def validated() -> dict[str, dict[str, list[str]]]:
    """List the values of each setting by profile, of all runs that ends are fitted to."""
    found: dict[str, dict[str, set[str]]] = {}
    for answered in fitted_to():
        run = described(answered.request)
        alone = ALONE if real_ranks(answered, run) == 1 else {}
        settings = found.setdefault(run.profile.name, {})
        for name, values in {**run.in_use, **alone}.items():
            settings.setdefault(name, set()).update(values)
    return {
        profile: {name: sorted(values) for name, values in settings.items()}
        for profile, settings in sorted(found.items())
    }


def write() -> None:
    """Write the list that ships with the package, and the page of it."""
    found = validated()
    dump("validated.json", "profiles", [{"profile": p, "settings": s} for p, s in found.items()])
    PAGE.write_text(page(found), encoding="utf-8")


def page(found: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Write the list as a page."""
    without = ", ".join(f"`{name}`" for name in kernel_profile.names() if name not in found)
    lines = [INTRO.format(without=without)]
    for profile, settings in found.items():
        lines += [f"## {profile}", "", "| setting | measured |", "|---|---|"]
        lines += [
            f"| {name} | {', '.join(values) or AT_LEAST[name]} |"
            for name, values in settings.items()
        ]
        lines.append("")
    return "\n".join(lines)
