"""What one run of a workload leaves behind, as the process of the run tells it to its job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from haversack.verify import (
    FirstDifference,
    RandomSource,
    SavedValues,
    StateChange,
    VerifyApplied,
)
from haversack_server.verify.comparison import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """An exception of the workload, and the part of the step that it came from."""

    part: str
    kind: str
    message: str
    out_of_memory: bool = False
    device_fault: bool = False

    def __str__(self) -> str:
        text = self.message.strip().partition("\n")[0]
        return f"{self.kind}: {text}"[:500] if text else self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionCount:
    """Entries and completions of all calls of one region in one run."""

    region: str
    entries: int = 0
    completions: int = 0
    expected_entries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One run: how it ended, and what could be seen of it.

    ``rows`` compare it with the first plain run; ``compared`` counts values by the name of their
    facet. ``tick_ns`` is the least step of the clock that took ``time_ns``.
    ``own_changes`` says of weights that an optimizer moved, by names of ``state``, what the steps
    themselves made of them. ``first_different_call`` is the number of the first checkpointed call
    whose replay saves other values; ``rewritten`` names buffers that replays have written,
    ``asked`` functions that the step called and that no seed repeats. A run whose process died
    ``is_lost`` and has nothing else but its ``exit_status``, if that is known.
    """

    stage: str
    is_lost: bool = False
    exit_status: int | None = None
    bad_workload: str = ""
    raised: Raised | None = None
    loss: str = ""
    time_ns: int = 0
    tick_ns: int = 1
    compared: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    rng: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    own_changes: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False
    regions: tuple[RegionCount, ...] = ()
    wrapped: tuple[str, ...] = ()
    sources: tuple[RandomSource, ...] = ()
    saved: tuple[SavedValues, ...] = ()
    first_different_call: int | None = None
    changes: tuple[StateChange, ...] = ()
    rewritten: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    first_difference: FirstDifference | None = None
    peak_bytes: int | None = None
    retained_bytes: int | None = None
    gradients_all_zero: bool = False
    device_name: str = ""
    notes: tuple[str, ...] = ()
    probe_notes: tuple[str, ...] = ()
    applied: VerifyApplied | None = None
