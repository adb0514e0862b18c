"""The planner against its gates: ``python -m tests.bench.plan [--only ...] [--write PAGE]``.

With ``--parts FOLDER`` every section that runs is kept there, and the page has the kept ones in
place of those that do not run; ``--merge`` runs none. Plans are executed: peaks by a tracker of
live storages and by the CPU's allocator, gradients bit by bit. Other ways to choose are executed
beside them. Needs torch, transformers and ortools.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import transformers
from tests.bench import (
    machine,
    plan_cases,
    plan_min_cut,
    plan_optimality,
    plan_parts,
    plan_peers,
    plan_profiles,
    plan_rows,
    plan_walks,
)
from tests.bench.report import as_markdown, options
from tests.bench.table import Row

INTRO = (
    "Written by `python -m tests.bench.plan --write docs/benchmarks/plan.md`. Counts, bytes and",
    "ratios of them do not feel what else a machine does; CPU seconds of a profile do.",
    "",
    "Small models in fp32 on a CPU, without optimizer states, so that activations are most of the",
    "peak. Budgets lie between the floor of the option set and the peak with everything saved.",
    "Plans that are executed are certified before, as `haversack plan --workload` does it: the",
    "whole step runs under fake tensors, and a plan is made anew where prediction and step are",
    "apart. The optimizer is SGD, which keeps no state. Fake tensors do not show what kernels",
    "take inside themselves, so a reserve for it is added to what the certificate saw. The",
    "reserve is what the allocator took beside live storages, and states of generators that",
    "checkpoints keep, in the plain step and in the plans of the least peak. That these stay",
    "within the budget is no test of the reserve, so the others have a row of their own. Extra",
    "times are a roofline's, of operations one by one. Peers, and ours beside them, are not",
    "certified: they are compared at the peak that they were executed with; one that has no",
    "schedule for a share, or recomputes nothing there, has no row.",
    "Rotor's schedules are solved by the kernel of its recurrence, in 2000 slots. By what is",
    "predicted of both, rotor is ahead at 30 % of the ResNet; its schedule is above that when it",
    "runs: [the decision](../decisions/0024-a-segment-may-hold-segments.md).",
    "min-cut: torch's partitioner with activation_memory_budget, unfused, each against its own",
    "base, and ours at the share of the peak that torch reached when it was asked for this one.",
    "Not compared here: wall time.",
)
PEERED = ("gpt2 12 layers, tied", "llama 8 layers", "bert 6 layers, dropout", "resnet 16 blocks")


def executed() -> Iterator[Row]:
    """Certify and execute every case."""
    found = []
    for subject in plan_cases.subjects():
        start = time.monotonic()
        own = list(plan_cases.cases_of(subject))
        found += own
        print(f"  {subject.name}: {len(own)} cases, {time.monotonic() - start:.0f} s", flush=True)
    yield from plan_rows.rows(found)


def peers() -> Iterator[Row]:
    """Execute other ways to choose."""
    for subject in plan_cases.subjects(PEERED):
        yield from plan_peers.rows(subject)


def min_cut() -> Iterator[Row]:
    """Execute what torch's partitioner makes of budgets."""
    for name in PEERED:
        yield from plan_min_cut.rows(name)


def optimality() -> Iterator[Row]:
    """Plan chains drawn at random, against all plans by the planner's pieces, and by hand."""
    yield from plan_optimality.rows()
    yield from plan_walks.rows()


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "optimality": optimality,
    "executed": executed,
    "peers": peers,
    "min-cut": min_cut,
    "profiles": plan_profiles.rows,
}


def main() -> None:
    """Print the machine and every figure; write the page if asked."""
    arguments = _arguments()
    warnings.filterwarnings("ignore")
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    found = _run([] if arguments.merge else arguments.only, arguments.parts)
    if not arguments.write:
        return
    if arguments.parts:
        others = [name for name in SECTIONS if name not in found]
        found.update({part.section: part for part in plan_parts.kept(arguments.parts, others)})
    parts = [found[name] for name in SECTIONS if name in found]
    rows = [row for part in parts for row in part.rows]
    intro = (*(plan_parts.said(parts) if arguments.parts else ()), *INTRO)
    arguments.write.write_text(as_markdown("Plan", intro, plan_parts.machine_of(parts), rows))


def _arguments() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--parts", type=Path, help="keep sections here, take others from here")
    parser.add_argument("--merge", action="store_true", help="run none, take all from --parts")
    found = parser.parse_args()
    if found.merge and not (found.parts and found.write):
        parser.error("--merge makes a page of kept sections: give --parts and --write")
    return found


def _run(names: Sequence[str], folder: Path | None) -> dict[str, plan_parts.Part]:
    """Run sections in their order, whatever the order of the names; keep each once it is whole."""
    described = machine.describe()
    print(machine.heading(described))
    found = {}
    for name in [each for each in SECTIONS if each in names]:
        found[name] = plan_parts.run(name, SECTIONS[name], described)
        if folder is not None:
            plan_parts.keep(folder, found[name])
    return found


if __name__ == "__main__":
    main()
