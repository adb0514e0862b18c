"""Tensors that skip over blocks: the bytes that a choice of options spares at each moment.

A table has such a tensor in what its maker retains, under every option. It is there in forward
until its last reader, and from the first block that keeps it on in both passes; at any other block
after its maker those bytes are spared. So what one block needs depends on options of others that
no sum of retained bytes tells. Knows no search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from haversack.profile import Profile, SkipTensor
from haversack_server.memory.chain import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A tensor as ``SkipTensor`` has it; ``keepers`` are blocks with the places of their options.

    They are in rising order and lie before ``end``, from where on it is kept whatever is chosen.
    """

    size_bytes: int
    maker: int
    read_until: int
    end: int
    keepers: tuple[tuple[int, frozenset[int]], ...]

    def first_keeper(self, options: Sequence[int]) -> int:
        """Name the first block that keeps it; ``end`` where none before that does."""
        return next((block for block, rows in self.keepers if options[block] in rows), self.end)


@dataclass(frozen=True, slots=True)
class Spared:
    """Bytes that are not there at each block's forward and backward, though tables have them."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]


def skips_of(profile: Profile, options: Mapping[str, Sequence[Option]]) -> tuple[Skip, ...]:
    """Read them off a profile, for the options that are left to each block."""
    return tuple(_skip(each, profile, options) for each in profile.skip_tensors)


def _skip(tensor: SkipTensor, profile: Profile, options: Mapping[str, Sequence[Option]]) -> Skip:
    end = len(profile.blocks) if tensor.kept_from is None else tensor.kept_from
    keepers = []
    for keeper in sorted(tensor.keepers, key=lambda each: each.block):
        rows = options[profile.blocks[keeper.block].name]
        keeping = frozenset(i for i, row in enumerate(rows) if row.name in keeper.option)
        if len(keeping) == len(rows):
            end = min(end, keeper.block)
        elif keeping:
            keepers.append((keeper.block, keeping))
    return Skip(
        size_bytes=tensor.size_bytes,
        maker=tensor.maker,
        read_until=tensor.read_until,
        end=end,
        keepers=tuple(each for each in keepers if each[0] < end),
    )


def spared(skips: Sequence[Skip], options: Sequence[int]) -> Spared:
    """Add up what a choice spares."""
    return _summed(skips, [skip.first_keeper(options) for skip in skips], len(options))


def most_spared(skips: Sequence[Skip], blocks: int) -> Spared:
    """Add up what no choice spares more of: as if nobody kept what some option does not."""
    return _summed(skips, [skip.end for skip in skips], blocks)


def _summed(skips: Sequence[Skip], ends: Sequence[int], blocks: int) -> Spared:
    forward = [(skip.read_until + 1, skip.size_bytes) for skip in skips]
    backward = [(skip.maker + 1, skip.size_bytes) for skip in skips]
    return Spared(_within(forward, ends, blocks), _within(backward, ends, blocks))


def _within(begins: Sequence[tuple[int, int]], ends: Sequence[int], blocks: int) -> tuple[int, ...]:
    """Add up sizes by block, each from where it begins up to its end."""
    steps = [0] * (blocks + 1)
    for (begin, size_bytes), end in zip(begins, ends, strict=True):
        if begin < end:
            steps[begin] += size_bytes
            steps[end] -= size_bytes
    return tuple(accumulate(steps[:-1]))
