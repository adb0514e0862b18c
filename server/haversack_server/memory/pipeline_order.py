"""The order of one pipeline stage by numbers: its forwards and backwards, chunk by chunk.

Under 1F1B stage p of P has done min(P - p, M) forwards when its first backward starts; interleaved
with v chunks on each stage it is (P - p - 1) * 2 + (v - 1) * P + 1 forwards of chunks, in groups of
P microbatches. Sources: Megatron-LM, megatron/core/pipeline_parallel/schedules.py,
get_pp_rank_microbatches and get_schedule_table; torch.distributed.pipelining's
ScheduleInterleaved1F1B counts the same. Knows no bytes.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from haversack.parallelism import PipelineSchedule


@dataclass(frozen=True, slots=True)
class Event:
    """A pass by numbers: forwards in flight by chunk beside its own, and what happened before.

    ``gradients_from`` counts chunks; ``waiting`` are chunks without a forward so far in this
    step, ``finished`` those whose last backward is done.
    """

    forward: bool
    chunk: int
    others: tuple[int, ...]
    gradients_from: int
    waiting: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()

    @property
    def later(self) -> bool:
        """Whether the chunk's gradients exist when the pass starts."""
        return self.gradients_from <= self.chunk


@lru_cache(maxsize=4096)
def kinds_of(
    stage: int, stages: int, microbatches: int, chunks: int, schedule: PipelineSchedule
) -> tuple[tuple[Event, ...], ...]:
    """Group passes that differ in what is in flight only, in the order of their first ones."""
    kinds: dict[tuple[bool, int, bool], list[Event]] = {}
    for event in _events(stage, stages, microbatches, chunks, schedule):
        kinds.setdefault((event.forward, event.chunk, event.later), []).append(event)
    return tuple(map(tuple, kinds.values()))


def _events(
    stage: int, stages: int, microbatches: int, chunks: int, schedule: PipelineSchedule
) -> tuple[Event, ...]:
    if schedule is PipelineSchedule.GPIPE:
        return _all_forward_first(microbatches, chunks)
    if chunks == 1:
        return _one_forward_one_backward(stage, stages, microbatches)
    # Warm-up ends within two groups of `stages` microbatches; after a third all that follow are
    # like it, up to an incomplete group at the end.
    enough = min(microbatches, 3 * stages + microbatches % stages)
    return _interleaved(stage, stages, enough, chunks)


def warm_up_of(stage: int, stages: int, microbatches: int, chunks: int) -> int:
    """Count the forwards of the warm-up; 1F1B then goes on with a forward where one is left."""
    if chunks == 1:
        return min(stages - stage, microbatches) - 1
    return min((stages - stage - 1) * 2 + (chunks - 1) * stages, microbatches * chunks)


def _one_forward_one_backward(stage: int, stages: int, microbatches: int) -> tuple[Event, ...]:
    """The four kinds of pass of 1F1B on one chunk; later ones exist where microbatches do."""
    others = warm_up_of(stage, stages, microbatches, 1)
    first = [Event(True, 0, (others,), 1), Event(False, 0, (others,), 1)]
    if microbatches > others + 1:
        first.append(Event(True, 0, (others,), 0))
    if microbatches > 1:
        first.append(Event(False, 0, (min(others, microbatches - 2),), 0))
    return tuple(first)


def _all_forward_first(microbatches: int, chunks: int) -> tuple[Event, ...]:
    """GPipe: every forward, then every backward; the highest of each kind."""
    others = microbatches - 1
    events = []
    for chunk in range(chunks):
        before = (microbatches,) * chunk + (others,) + (0,) * (chunks - chunk - 1)
        events.append(Event(True, chunk, before, chunks))
    for chunk in reversed(range(chunks)):
        before = (microbatches,) * chunk + (others,) + (0,) * (chunks - chunk - 1)
        events.append(Event(False, chunk, before, chunk + 1))
        if others:
            less = (microbatches,) * chunk + (others - 1,) + (0,) * (chunks - chunk - 1)
            events.append(Event(False, chunk, less, chunk))
    return tuple(events)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> tuple[Event, ...]:
    """Walk the interleaved schedule of one stage; equal passes are given once."""
    forwards = _chunk_order(stages, microbatches, chunks)
    backwards = [chunks - 1 - chunk for chunk in forwards]
    warm_up = warm_up_of(stage, stages, microbatches, chunks)
    walk = _Walk(chunks, microbatches)
    for chunk in forwards[:warm_up]:
        walk.forward(chunk)
    for place, chunk in enumerate(forwards[warm_up:]):
        walk.forward(chunk)
        walk.backward(backwards[place])
    for chunk in backwards[len(forwards) - warm_up :]:
        walk.backward(chunk)
    return tuple(walk.events)


def _chunk_order(stages: int, microbatches: int, chunks: int) -> list[int]:
    """The chunk of each forward: groups of ``stages`` microbatches go through all chunks."""
    order: list[int] = []
    for first in range(0, microbatches, stages):
        group = min(stages, microbatches - first)
        order += [chunk for chunk in range(chunks) for _ in range(group)]
    return order


class _Walk:
    """The passes of a stage so far, in order; each distinct one once."""

    def __init__(self, chunks: int, microbatches: int) -> None:
        self.events: dict[Event, None] = {}
        self._in_flight = [0] * chunks
        self._microbatches = microbatches
        self._done: Counter[int] = Counter()
        self._waiting = frozenset(range(chunks))
        self._finished: frozenset[int] = frozenset()

    def forward(self, chunk: int) -> None:
        """Run one forward; its chunk's parked tensors are replaced."""
        self._waiting -= {chunk}
        self._note(True, chunk)
        self._in_flight[chunk] += 1

    def backward(self, chunk: int) -> None:
        """Run one backward of the oldest microbatch in flight."""
        self._in_flight[chunk] -= 1
        self._note(False, chunk)
        self._done[chunk] += 1
        if self._done[chunk] == self._microbatches:
            self._finished |= {chunk}

    def _note(self, forward: bool, chunk: int) -> None:
        gradients_from = min(self._done, default=len(self._in_flight))
        others = tuple(self._in_flight)
        made = Event(forward, chunk, others, gradients_from, self._waiting, self._finished)
        self.events[made] = None
