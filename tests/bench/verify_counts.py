"""Recompute counts against what nesting, backwards and early stop ask for, worked out by hand.

Entries: one for each forward, and for each backward one replay of a region and one more for each
region around it. Completions: an early stop leaves a replay before its end.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.table import Row, at_least

from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest
from haversack_server.jobs import JobRunner

# Per region, in the order of the forward: entries of the plain step, then of the checkpointed one.
ENTRIES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "mlp": ((1, 2),) * 4,
    "hooks-nested": ((1, 2), (1, 3)),
    "hooks-retained-graph": ((1, 3),),
    "hooks-double-backward": ((1, 3),),
    "hooks-accumulated": ((2, 4),),
    "hooks-kept-on-the-context": ((1, 1),),
}
COMPLETIONS: Mapping[bool, int] = {True: 1, False: 2}  # of each region of mlp, by early stop


def counts() -> Iterator[Row]:
    """Compare the counts of every region with what is expected."""
    asked: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in ENTRIES]
    asked += [("mlp", {"early_stop": stops}) for stops in COMPLETIONS]
    *entered, stopped, whole = asyncio.run(_reports(asked))
    right = []
    for name, found in zip(ENTRIES, entered, strict=True):
        entries = tuple((each.plain_entries, each.entries) for each in found)
        right.append(entries == ENTRIES[name])
        if not right[-1]:
            print(f"{name}: {entries} in place of {ENTRIES[name]}")
    yield _exact("entries: nested, two backwards, two microbatches", right)
    for stops, found in ((True, stopped), (False, whole)):
        completions = [each.completions == COMPLETIONS[stops] for each in found]
        yield _exact(f"completions, early stop {'on' if stops else 'off'}", completions)


async def _reports(asked: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    found = []
    async with JobRunner() as runner:
        for name, settings in asked:
            job = runner.submit(VerifyRequest(workload=WorkloadReference(name=name), **settings))
            report = [event.report async for event in job.events()][-1]
            assert report is not None
            found.append(report.recompute_counts)
    return found


def _exact(what: str, right: list[bool]) -> Row:
    share = 100 * sum(right) / len(right)
    return at_least("counts", f"{what}, {sum(right)} of {len(right)} exact", share, 100, "%")
