"""A profile as the planner sees it: options by block, what stands beside them, and the peak.

A moment is the forward or the backward of one block. At it are live: states, what the caller holds,
gradients made so far, what the blocks before retain, and the block's own peak.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from haversack.plan import PeakAt
from haversack.profile import OptionTable, Profile
from haversack.units import format_bytes
from haversack_server.memory.chain import Option
from haversack_server.plan.ceiling import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledChain:
    """Blocks in the order of the forward, with bytes that no option changes.

    ``standing_bytes`` are there at every moment; ``gradients_before`` at a block's backward were
    made by the backwards before it, or stand from an earlier microbatch.
    """

    names: tuple[str, ...]
    options: tuple[tuple[Option, ...], ...]
    standing_bytes: int
    forward_gradients: tuple[int, ...]
    gradients_before: tuple[int, ...]
    all_gradients: int

    def peak(self, chosen: Sequence[int]) -> tuple[int, PeakAt]:
        """Give the highest live bytes with these options, and where they are."""
        rows = [options[index] for options, index in zip(self.options, chosen, strict=True)]
        kept = [0, *accumulate(row.retained_bytes for row in rows)]
        moments = [
            self._moment("forward", place, kept[place], row.forward_peak_bytes)
            for place, row in enumerate(rows)
        ] + [
            self._moment("backward", place, kept[place], row.backward_peak_bytes)
            for place, row in reversed(list(enumerate(rows)))
        ]
        last = self.standing_bytes + self.all_gradients
        step = PeakAt(phase="optimizer", moment="optimizer step")
        return max([*moments, (last, step)], key=lambda moment: moment[0])

    def _moment(self, phase: str, place: int, kept: int, own: int) -> tuple[int, PeakAt]:
        gradients = (self.forward_gradients if phase == "forward" else self.gradients_before)[place]
        name = self.names[place]
        terms = {
            "states and what the caller holds": self.standing_bytes,
            "gradients so far": gradients,
            "retained by the blocks before": kept,
            f"{phase} of {name}": own,
        }
        largest = sorted(terms.items(), key=lambda term: -term[1])
        at = PeakAt(
            block=name,
            phase=phase,
            moment=f"{phase} {name}",
            largest_terms=tuple(f"{term}: {format_bytes(size)}" for term, size in largest if size),
        )
        return sum(terms.values()), at

    def tables(self) -> Tables:
        """Write the chain as the columns of the ceiling's programme."""
        counts = [len(options) for options in self.options]
        rows = [row for options in self.options for row in options]
        return Tables(
            offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            retained=np.array([row.retained_bytes for row in rows], dtype=np.int64),
            forward_peak=np.array([row.forward_peak_bytes for row in rows], dtype=np.int64),
            backward_peak=np.array([row.backward_peak_bytes for row in rows], dtype=np.int64),
            extra=np.array([row.extra_ns for row in rows], dtype=np.int64),
            forward_base=self.standing_bytes + np.array(self.forward_gradients, dtype=np.int64),
            backward_base=self.standing_bytes + np.array(self.gradients_before, dtype=np.int64),
            fixed_bytes=self.standing_bytes + self.all_gradients,
        )


def chain_of(
    profile: Profile,
    options: Mapping[str, tuple[Option, ...]],
    *,
    moments_bytes: int,
    accumulation: int,
) -> ProfiledChain:
    """Put a profile's blocks and the states of a run together."""
    gradients = [block.gradient_bytes for block in profile.blocks]
    total = sum(gradients)
    made = [0, *accumulate(reversed(gradients))]
    # A second microbatch adds to gradients that stand, and makes its own beside them first.
    stands = total if accumulation > 1 else 0
    before = [stands or each for each in made[:-1]]
    return ProfiledChain(
        names=tuple(block.name for block in profile.blocks),
        options=tuple(options[block.name] for block in profile.blocks),
        standing_bytes=sum(block.parameter_bytes for block in profile.blocks)
        + moments_bytes
        + profile.held_by_caller_bytes
        + profile.workspace_bytes,
        forward_gradients=(stands,) * len(gradients),
        gradients_before=tuple(reversed(before)),
        all_gradients=total,
    )


def options_of(profile: Profile) -> dict[str, tuple[Option, ...]]:
    """Read each block's options off its table."""
    return {block.name: _options(profile.tables[block.table]) for block in profile.blocks}


def _options(table: OptionTable) -> tuple[Option, ...]:
    columns = zip(
        table.option,
        table.retained_bytes,
        table.forward_peak_bytes,
        table.backward_peak_bytes,
        table.extra_ns,
        strict=True,
    )
    return tuple(
        Option(
            name=name,
            retained_bytes=retained,
            forward_peak_bytes=forward,
            backward_peak_bytes=backward,
            extra_ns=extra,
        )
        for name, retained, forward, backward, extra in columns
    )
