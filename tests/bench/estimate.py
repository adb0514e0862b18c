"""Estimate against published, measured and reported figures: every gate and case of one run.

    python -m tests.bench.estimate [--json] [--only SECTION ...] [--write PAGE]
    python -m tests.bench.estimate --fit

``--fit`` writes the settings that were measured, the ends of intervals and the measured rows that
ship with the package, and prints nothing else: the run that judges them is another. Misses are
printed like everything else.
"""

from collections.abc import Callable, Iterator

from tests.bench import (
    estimate_adapters,
    estimate_bounds,
    estimate_formulas,
    estimate_fsdp2,
    estimate_latency,
    estimate_left_out,
    estimate_measured,
    estimate_megatron,
    estimate_optimizers,
    estimate_published,
    estimate_users,
    estimate_validated,
    machine,
)
from tests.bench.report import as_markdown, figures, options, told
from tests.bench.table import Row

SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "zero": estimate_formulas.zero_table,
    "paper": estimate_formulas.paper_activations,
    "blocks": estimate_formulas.measured_blocks,
    "live-blocks": estimate_formulas.live_blocks,
    "parameters": estimate_formulas.parameters,
    "optimizers": estimate_formulas.optimizer_states,
    "fsdp2": estimate_fsdp2.tracked,
    "claimed": estimate_left_out.claimed,
    "unclaimed": estimate_megatron.unclaimed,
    "others": estimate_megatron.others,
    "reported": estimate_megatron.reported,
    "measured": estimate_measured.peaks,
    "phases": estimate_measured.phases,
    "reserved": estimate_measured.reserved,
    "torchtitan": estimate_left_out.torchtitan,
    "adapters": estimate_adapters.adapters,
    "offload": estimate_optimizers.offload,
    "bounds": estimate_bounds.bounds,
    "negative": estimate_published.negative,
    "users": estimate_users.users,
    "latency": estimate_latency.latency,
}
INTRO = (
    "By `python -m tests.bench.estimate --write docs/benchmarks/estimate.md`, unedited.",
    "A case of several rows counts once, with the median of its rows. What the misses mean",
    "stands in [estimate-notes.md](estimate-notes.md), what is claimed in",
    "[estimate-claims.md](../estimate-claims.md).",
)


def main() -> None:
    """Print the machine and every figure, as a table or as one JSON object."""
    parser = options(__doc__, SECTIONS)
    parser.add_argument("--fit", action="store_true", help="write package data; print nothing")
    asked = parser.parse_args()
    if asked.fit:
        estimate_validated.write()  # before anything is fitted
        estimate_bounds.write()
        return
    described = machine.describe()
    rows = told(described, figures(SECTIONS, asked.only), as_json=asked.json)
    if asked.write:
        title = "Estimate: figures of one run"
        asked.write.write_text(as_markdown(title, INTRO, described, rows))


if __name__ == "__main__":
    main()
