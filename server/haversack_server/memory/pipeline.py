"""The passes of one pipeline stage: what it runs, and what it holds beside the running microbatch.

A *pass* is one forward or one backward of one chunk of layers. Passes of one kind differ in what is
in flight only, so the highest of each kind stands for all. Knows no words for the ledger, no states
and no kernels; the order of passes has a file, ``pipeline_order``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import ge, mul

from haversack.parallelism import PipelineSchedule
from haversack_server.memory.pipeline_order import Event, kinds_of, warm_up_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Blocks ``start:stop`` of a stage's chain, run as one.

    ``received_bytes``: the input from another stage, kept from forward to backward.
    ``sent_bytes``: what is freed of the retained output once it has been sent to another stage.
    ``buffer_bytes``: buffers that stand for each microbatch of a step, to receive into.
    ``parked_bytes``: what the chunk holds from the end of one step to its first forward in the
    next (the last received input and its gradient).
    """

    start: int
    stop: int
    received_bytes: int = 0
    sent_bytes: int = 0
    buffer_bytes: int = 0
    parked_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One stage of ``stages``; without chunks, its blocks are one chunk."""

    stage: int = 0
    stages: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    chunks: tuple[Chunk, ...] = ()

    def chunks_of(self, blocks: int) -> tuple[Chunk, ...]:
        """Give the chunks of a chain of ``blocks`` blocks."""
        return self.chunks or (Chunk(start=0, stop=blocks),)

    def parked_bytes(self) -> int:
        """Bytes that chunks hold from one step to their first forward in the next."""
        return sum(chunk.parked_bytes for chunk in self.chunks)

    def standing_bytes(self, microbatches: int) -> int:
        """Bytes of receive buffers, which stand from the first pass on."""
        return microbatches * sum(chunk.buffer_bytes for chunk in self.chunks)

    def between_steps_bytes(self, microbatches: int) -> int:
        """Bytes that stay between two steps."""
        return self.parked_bytes() + self.standing_bytes(microbatches)

    def warm_up(self, microbatches: int) -> int:
        """Count the forwards of the warm-up; stages with equal warm-ups run alike."""
        if self.schedule is PipelineSchedule.GPIPE:
            return microbatches - 1
        return warm_up_of(self.stage, self.stages, microbatches, len(self.chunks) or 1)

    def kinds(self, microbatches: int) -> tuple[tuple[Event, ...], ...]:
        """Give every distinct pass by numbers, by kind; stages with equal ones run alike."""
        count = len(self.chunks) or 1
        return kinds_of(self.stage, self.stages, microbatches, count, self.schedule)

    def most_in_flight(self, microbatches: int) -> int:
        """Forwards of chunks whose backward is not done, at their highest; the running one too."""
        kinds = self.kinds(microbatches)
        return 1 + max(sum(event.others) for kind in kinds for event in kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward or backward of the blocks ``start:stop``, and what a stage holds beside it.

    ``in_flight_bytes``: what other microbatches keep for their backward. ``stage_bytes``: the
    received input of this pass, buffers to receive into, and what is parked. ``gradients_from``:
    the first block whose gradients exist when the pass starts; the number of blocks if none, 0 if
    all do.
    """

    name: str
    forward: bool
    start: int
    stop: int
    in_flight_bytes: int
    stage_bytes: int
    gradients_from: int


def passes(
    pipeline: Pipeline,
    retained: Sequence[int],
    gradients: Sequence[int],
    microbatches: int,
    *,
    step: int,
) -> tuple[Pass, ...]:
    """Give the highest pass of each kind, in the order in which a stage runs them.

    ``retained``: bytes that each block keeps from forward to backward. ``gradients``: bytes of
    the gradients of each block and of those after it, with a last entry of 0. Before step 1
    nothing is parked.
    """
    chunks = pipeline.chunks_of(len(retained))
    kept = tuple(_kept(chunk, retained) for chunk in chunks)
    starts = (*(each.start for each in chunks), chunks[-1].stop)
    existing = tuple(gradients[start] for start in starts)
    carried = step > 1 and pipeline.parked_bytes() > 0
    return _highest(pipeline, chunks, kept, existing, microbatches, carried)


def open_passes(
    pipeline: Pipeline, gradients: Sequence[int], microbatches: int, *, step: int
) -> tuple[tuple[tuple[int, ...], Pass], ...]:
    """Give the passes that may be the highest, whatever blocks retain; that counts as nothing here.

    Each comes with how many microbatches of every chunk are in flight beside it. ``gradients`` as
    for ``passes``.
    """
    chunks = pipeline.chunks_of(len(gradients) - 1)
    starts = (*(each.start for each in chunks), chunks[-1].stop)
    nothing = [0] * (len(gradients) - 1)
    kept, existing = [_kept(each, nothing) for each in chunks], [gradients[s] for s in starts]
    given = _Given(chunks, kept, existing, step > 1 and pipeline.parked_bytes() > 0)
    standing = pipeline.standing_bytes(microbatches)
    return tuple(
        (event.others, given.made(event, "", standing))
        for kind in pipeline.kinds(microbatches)
        for event in _not_beaten(kind, given)
    )


def _not_beaten(kind: Sequence[Event], given: "_Given") -> list[Event]:
    """Leave out events that another one of the kind is above in everything."""
    best: list[tuple[tuple[int, ...], Event]] = []
    for event in kind:
        sizes = (given.parked(event) + given.gradients[event.gradients_from], *event.others)
        if any(all(map(ge, other, sizes)) for other, _ in best):
            continue
        best = [each for each in best if not all(map(ge, sizes, each[0]))]
        best.append((sizes, event))
    return [event for _, event in best]


@lru_cache(maxsize=256)
def _highest(
    pipeline: Pipeline,
    chunks: tuple[Chunk, ...],
    kept: tuple[int, ...],
    gradients: tuple[int, ...],
    microbatches: int,
    carried: bool,
) -> tuple[Pass, ...]:
    """Find the highest of each kind; where nothing is carried over, both steps have the same."""
    given = _Given(chunks, kept, gradients, carried)
    standing = pipeline.standing_bytes(microbatches)
    several = len(chunks) > 1, microbatches > 1
    highest = [max(kind, key=given.height) for kind in pipeline.kinds(microbatches)]
    return tuple(given.made(event, _name(event, *several), standing) for event in highest)


class _Given:
    """What the events of a stage weigh: bytes of chunks, of gradients, and of what is parked.

    ``carried``: whether chunks have something from the step before.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        kept: Sequence[int],
        gradients: Sequence[int],
        carried: bool,
    ) -> None:
        self.chunks = chunks
        self.kept = kept
        self.starts = [*(each.start for each in chunks), chunks[-1].stop]
        self.gradients = gradients
        self.parks = any(chunk.parked_bytes for chunk in chunks)
        self.carried = carried

    def in_flight(self, event: Event) -> int:
        """What other microbatches keep."""
        return sum(map(mul, event.others, self.kept))

    def parked(self, event: Event) -> int:
        """What chunks hold that have not run yet, after step 1, or that have done with the step."""
        if not self.parks:
            return 0
        places = event.finished | (event.waiting if self.carried else frozenset())
        return sum(self.chunks[place].parked_bytes for place in places)

    def height(self, event: Event) -> int:
        """All bytes in which passes of one kind differ."""
        return self.in_flight(event) + self.parked(event) + self.gradients[event.gradients_from]

    def made(self, event: Event, name: str, standing_bytes: int) -> Pass:
        """Write an event as a pass."""
        chunk = self.chunks[event.chunk]
        return Pass(
            name=name,
            forward=event.forward,
            start=chunk.start,
            stop=chunk.stop,
            in_flight_bytes=self.in_flight(event),
            stage_bytes=chunk.received_bytes + self.parked(event) + standing_bytes,
            gradients_from=self.starts[event.gradients_from],
        )


def _kept(chunk: Chunk, retained: Sequence[int]) -> int:
    """What a chunk keeps for one microbatch that is in flight."""
    return chunk.received_bytes + sum(retained[chunk.start : chunk.stop]) - chunk.sent_bytes


def _name(event: Event, chunks: bool, microbatches: bool) -> str:
    """Name a pass: which microbatch, if there are several, of which chunk, if there are several."""
    which = ("later microbatch" if event.later else "first microbatch") if microbatches else ""
    if not chunks:
        return which
    return f"{which} of chunk {event.chunk}" if which else f"chunk {event.chunk}"
