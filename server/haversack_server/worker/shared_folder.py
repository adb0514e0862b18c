"""The working folder that all ranks of a run share: how they find it, and what they leave there.

A rank cannot tell its own files from those that others write meanwhile. So the process that forks
them looks, before the first begins and after the last has ended.

Of a file that one rank alone was seen to open all is compared. Others may be written by several, as
by a logger on every rank, and who comes first is nobody's choice: of those lines are compared, in
no order, and of what is no text the size. Where ranks write over each other, or two write one
line, what is left is chance.
"""

import os
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from haversack_server.verify.ranks import RankOutcome
from haversack_server.worker import scratch
from haversack_server.worker.effects import OPENED


@dataclass(slots=True)
class SharedFolder:
    """A folder that each run finds as it was when this was made.

    ``is_looked_at`` is false where others than ranks write there: the driver of a GPU.
    """

    folder: pathlib.Path
    is_looked_at: bool = True
    _kept: scratch.Scratch = field(init=False)
    _before: dict[str, scratch.Status] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._kept = scratch.Scratch(self.folder)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where files are not put back."""
        return self._kept.notes

    def put_back(self) -> None:
        """Make the folder what it was, before ranks are forked."""
        self._kept.put_back()
        self._before = scratch.statuses(self.folder)

    def looked_at(self, ranks: list[RankOutcome]) -> list[RankOutcome]:
        """Add to what the first rank tells the files that all of them left."""
        if not self.is_looked_at:
            return ranks
        writers = _writers(ranks)

        def told(name: str, content: bytes) -> bytes | None:
            return content if writers[name] == 1 else _without_order(content)

        first, *others = ranks
        files = scratch.spelled_changes(self.folder, self._before, told)
        return [replace(first, files=files), *others]


def _writers(ranks: Iterable[RankOutcome]) -> Counter[str]:
    """Count the ranks that were seen to open a file for writing, by its name in the folder."""
    opened = [
        {
            os.path.normpath(name.removeprefix(OPENED))
            for name in rank.outcome.state
            if name.startswith(OPENED)
        }
        for rank in ranks
    ]
    return Counter(name for names in opened for name in names)


def _without_order(content: bytes) -> bytes | None:
    """Give what of a file is the same in whatever order ranks come to write; None but for text."""
    return None if b"\0" in content else b"\n".join(sorted(content.split(b"\n")))
