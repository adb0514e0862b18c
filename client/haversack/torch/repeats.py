"""Which parts of a chain do the same in the same surroundings, so that one of them is measured.

A part's figures depend on what it does and on its neighbours: what they hand it, and what they
leave alive. So parts are the same where they and those next to them are: the block and what lies
between, on either side. The first of each stands for the others; it and its neighbours have to
run, the other blocks need not.
"""

from collections.abc import Collection, Sequence

_REACH = 2


class Repeats:
    """Answers for parts by their keys; odd parts are blocks. ``needed`` are those that must run."""

    def __init__(self, keys: Sequence[str], needed: Collection[int] = ()) -> None:
        first: dict[tuple[str, ...], int] = {}
        self.stands_for = [
            first.setdefault(_surroundings(keys, part), part) for part in range(len(keys))
        ]
        self._run = set(needed)
        for part in first.values():
            self._run.update(range(part - _REACH, part + _REACH + 1))

    def is_run(self, part: int) -> bool:
        """Whether a block has to run itself."""
        return part in self._run


def _surroundings(keys: Sequence[str], part: int) -> tuple[str, ...]:
    return tuple(
        keys[near] if 0 <= near < len(keys) else ""
        for near in range(part - _REACH, part + _REACH + 1)
    )
