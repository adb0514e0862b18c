"""The probes of one run, put together: which there are, what they ask of regions, what they found.

A run under probes explains; all that it decides is what has a tolerance, and whether plain runs are
made again. Each probe can be had alone, so that its cost can be measured.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from haversack_server.verify.chance import MORE_RUNS
from haversack_server.worker.blocks import module_names
from haversack_server.worker.buffer_writes import BufferWatch
from haversack_server.worker.leaves import Leaves
from haversack_server.worker.region_state import MOST_THINGS, StateWatch, module_paths
from haversack_server.worker.regions import Watcher
from haversack_server.worker.saved import SavedWatch
from haversack_server.worker.trace import TraceWatch, tensor_names
from haversack_server.worker.unrepeatable import Unrepeatable
from haversack_server.worker.watch import RandomWatch


class Probe(enum.Enum):
    """What a run may look at beside what it leaves."""

    MEMORY = "memory"
    RANDOM = "random sources"
    SAVED = "saved values"
    STATE = "state of regions"
    BUFFERS = "buffers that replays write"
    TRACE = "operations"
    UNREPEATABLE = "what no seed repeats"


OF_PLAIN = frozenset({Probe.MEMORY})
OF_RANKS = frozenset({Probe.MEMORY, Probe.RANDOM, Probe.BUFFERS})
OF_CHECKPOINTED = OF_RANKS | {Probe.SAVED, Probe.STATE, Probe.UNREPEATABLE}
OF_TRACED = frozenset({Probe.TRACE})
NONE: frozenset[Probe] = frozenset()


@dataclass(frozen=True, slots=True)
class Probes:
    """The probes of regions, and one of the whole step; None where a run has no such probe."""

    state: StateWatch | None
    buffers: BufferWatch | None
    random: RandomWatch | None
    saved: SavedWatch | None
    trace: TraceWatch | None
    unrepeatable: Unrepeatable | None

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """Give those that there are; saved values come last, so as to follow the region alone."""
        probes = (self.state, self.buffers, self.random, self.trace, self.saved)
        return tuple(probe for probe in probes if probe is not None)

    @property
    def renamed_check(self) -> Callable[[str], str] | None:
        """Give what names the determinism checks of the probe of saved values."""
        return self.saved.renamed if self.saved is not None and self.saved.is_possible else None

    def notes(self) -> tuple[str, ...]:
        """Say what the probes could not do, and what it takes to tell chance from a difference."""
        said = []
        if self.unrepeatable is not None and self.unrepeatable.asked:
            said.append(
                f"The step asks {', '.join(self.unrepeatable.asked)}, which no seed repeats: where "
                f"two plain runs are alike, up to {MORE_RUNS} more are run until one is not"
            )
        if self.saved is not None and not self.saved.is_possible:
            said.append(
                f"torch {torch.__version__} has no place for the probe of saved values: only a "
                "traced run compares the values of replays"
            )
        if self.state is not None and self.state.truncated:
            said.append(
                f"The probe of state stopped after {MOST_THINGS} things of one region; the "
                "comparison after the step goes further"
            )
        return tuple(said)


def probes_of(
    wanted: frozenset[Probe],
    model: Any,
    leaves: Leaves,
    *,
    checkpointed: bool,
    last_traced: int | None = None,
) -> Probes:
    """Make the probes that a run wants; those that compare replays only where there are some."""
    saved = SavedWatch() if Probe.SAVED in wanted and checkpointed else None
    if saved is not None:
        saved.install()
    return Probes(
        state=StateWatch(module_paths(model)) if Probe.STATE in wanted and checkpointed else None,
        buffers=BufferWatch(leaves.modules, leaves.stood, leaves.parameters)
        if Probe.BUFFERS in wanted and checkpointed
        else None,
        random=RandomWatch(leaves.generators) if Probe.RANDOM in wanted else None,
        saved=saved,
        trace=TraceWatch(module_names(model), tensor_names(model), last_traced)
        if Probe.TRACE in wanted
        else None,
        unrepeatable=Unrepeatable() if Probe.UNREPEATABLE in wanted else None,
    )
