"""A profile as the planner sees it: options by block, and what stands beside them.

A moment is the forward or the backward of one block. At it are live: states, what the caller holds,
gradients made so far, what the blocks before retain, and the block's own peak.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from haversack.profile import OptionTable, Profile
from haversack_server.memory.chain import Option
from haversack_server.plan.ceiling import Tables
from haversack_server.plan.skips import Skip, skips_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A block that may be in a segment: its options there, and its whole forward.

    ``segment_bytes`` are what it leaves in the middle of one, ``peak_bytes`` the highest while its
    forward runs there, the output of the block before included. ``waiting_bytes`` are there when it
    begins to run again; None where nobody looked. On a rank that gathers weights, ``whole_bytes``
    are the block's, which stay whole from its second run to the end of its backward, and
    ``gather_bytes`` what is there when they are gathered. ``ahead_bytes`` of its base are weights
    of the block before, gathered ahead of its turn: in a segment that has run again they are whole
    in any case. ``begin_bytes`` are there when its backward begins, before a segment that it ends
    runs again.
    """

    save: Option
    recompute: Option
    segment_bytes: int
    peak_bytes: int
    forward_ns: int
    waiting_bytes: int | None = None
    whole_bytes: int = 0
    gather_bytes: int = 0
    ahead_bytes: int = 0
    begin_bytes: int = 0

    @property
    def again_peak_bytes(self) -> int:
        """The highest bytes of its second run, after which it is saved, as one but the last."""
        return max(self.gather_bytes, self.whole_bytes + self.save.forward_peak_bytes)

    @property
    def kept_bytes(self) -> int:
        """What it keeps of its second run until its backward."""
        return self.save.retained_bytes + self.whole_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledChain:
    """Blocks in the order of the forward, with bytes that no option changes.

    ``standing_bytes`` are there at every moment; ``gradients_before`` at a block's backward were
    made by the backwards before it, or stand from an earlier microbatch. ``step_bytes`` are what
    the optimizer's step adds while it runs, ``region_bytes`` what a checkpoint keeps beside tensors
    for each block that it runs again. On one rank of several the gradients have beside them what is
    gathered and reduced, as ``beside`` says. ``reserve_bytes`` of those that stand are kept free.
    Of what blocks retain, ``skips`` are freed early by some choices.
    """

    names: tuple[str, ...]
    options: tuple[tuple[Option, ...], ...]
    standing_bytes: int
    forward_gradients: tuple[int, ...]
    gradients_before: tuple[int, ...]
    all_gradients: int
    step_bytes: int = 0
    region_bytes: int = 0
    reserve_bytes: int = 0
    inside: tuple[Inside | None, ...] = ()
    beside: str = "gradients so far"
    skips: tuple[Skip, ...] = ()

    @property
    def fixed_bytes(self) -> int:
        """The highest moment that no option moves: the optimizer's step."""
        return self.standing_bytes + self.all_gradients + self.step_bytes

    def base(self, forward: bool, place: int) -> int:
        """Bytes at a block's forward or backward that no option changes."""
        gradients = self.forward_gradients if forward else self.gradients_before
        return self.standing_bytes + gradients[place]

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
            fixed_bytes=self.fixed_bytes,
        )


def chain_of(
    profile: Profile,
    options: Mapping[str, tuple[Option, ...]],
    *,
    moments_bytes: int,
    accumulation: int,
    step_bytes: int = 0,
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
        + profile.standing_bytes
        + profile.held_by_caller_bytes
        + profile.workspace_bytes,
        forward_gradients=(stands,) * len(gradients),
        gradients_before=tuple(reversed(before)),
        all_gradients=total,
        step_bytes=step_bytes,
        region_bytes=profile.region_bytes,
        reserve_bytes=max(0, profile.workspace_bytes),
        inside=_inside(profile, options),
        skips=skips_of(profile, options),
    )


def _inside(
    profile: Profile, allowed: Mapping[str, tuple[Option, ...]]
) -> tuple[Inside | None, ...]:
    """Give the blocks that may be in a segment: recomputation is open to them, and was profiled."""
    every, found = options_of(profile), list[Inside | None]()
    for block in profile.blocks:
        rows = {option.name: option for option in every[block.name]}
        may = any(option.name == "recompute" for option in allowed[block.name])
        known = block.segment_bytes, block.segment_peak_bytes, block.forward_ns
        if not may or "save" not in rows or None in known:
            found.append(None)
            continue
        found.append(
            Inside(
                save=rows["save"],
                recompute=rows["recompute"],
                segment_bytes=block.segment_bytes or 0,
                peak_bytes=block.segment_peak_bytes or 0,
                forward_ns=block.forward_ns or 0,
                waiting_bytes=block.waiting_bytes,
            )
        )
    return tuple(found)


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
