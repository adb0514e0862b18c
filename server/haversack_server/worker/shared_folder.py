"""The working folder that all ranks of a run share: how they find it, and what they leave there.

A rank cannot tell its own files from those that others write meanwhile. So the process that forks
them looks, before the first begins and after the last has ended.
"""

import pathlib
from dataclasses import dataclass, field, replace

from haversack_server.verify.ranks import RankOutcome
from haversack_server.worker import scratch


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
        first, *others = ranks
        return [replace(first, files=scratch.spelled_changes(self.folder, self._before)), *others]
