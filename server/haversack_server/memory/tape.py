"""A block as a tape of operations over storages; its bytes are read off by simulating lifetimes.

What the simulation knows of eager PyTorch:

- forward: a storage lives from the operation that writes it to the last that reads it, or that a
  Python variable holds it through; what an operation saves, and the output, live on;
- backward: operations in reverse; while one runs, its saved storages, the gradients of its
  results, the new gradients and its scratch are alive together. Then what no earlier operation
  saved is freed, and a second gradient of the same storage is added into a third buffer;
- a gradient that an operation only hands on (a sum, a view) is the same storage;
- recompute is ``torch.utils.checkpoint(use_reentrant=False)`` around the block: nothing is saved
  in forward; backward first runs forward again, up to the last operation that saves something.

Parameters, the block's input and the gradients of parameters are not on a tape: they are
other terms of the timeline. Knows nothing of transformers, dtypes or kernels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from haversack_server.memory import regions
from haversack_server.memory.regions import Region


class Storage(NamedTuple):
    """Memory that an operation writes; a view has size 0 and a gradient of its own.

    ``gradient_bytes`` is 0 where no gradient flows (masks, statistics that are not differentiated).
    """

    name: str
    size_bytes: int
    gradient_bytes: int


class Operation(NamedTuple):
    """One kernel, as autograd sees it; ``reads`` are differentiated where they have gradients.

    ``saves``: kept for its backward. ``holds``: alive through it, as what it reads and what Python
    variables name; here a view stands for the storage that it shows.
    ``passes_gradient``: its backward hands on the gradient of its result, without a copy.
    ``parameter_bytes`` are those of the parameters whose gradients its backward makes.
    ``scope`` groups operations that a selective policy recomputes together.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    saves: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    passes_gradient: bool = False
    forward_scratch_bytes: int = 0
    backward_scratch_bytes: int = 0
    flops: int = 0
    moved_bytes: int = 0
    parameter_bytes: int = 0
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """A block: its operations in forward order, from ``input`` to ``output``.

    The input's own bytes belong to the block before; its gradient is made here and counts.
    ``outer`` storages belong to earlier blocks as well, and later blocks have begun their
    gradients. ``cached`` ones are kept by autocast until the forward of all blocks ends;
    ``attributes`` are kept by functions of the graph itself, as long as something names the graph.
    """

    name: str
    input: str
    output: str
    storages: Mapping[str, Storage]
    operations: tuple[Operation, ...]
    outer: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()

    def size_of(self, names: Iterable[str]) -> int:
        """Sum the bytes of distinct storages; the input counts 0."""
        return sum(self.storages[name].size_bytes for name in set(names) if name != self.input)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One way to run a block: what it keeps, what it peaks at, what it costs beyond ``save``.

    ``retained_bytes``: kept from the block's forward to its backward, its output included, its
    input and parameters excluded. The peaks are the highest live bytes the block itself adds
    while it runs, retained bytes and recomputation included, gradients of parameters excluded.
    ``backward_points`` are moments of the backward, as live bytes (a peak is the highest of them)
    and bytes of parameters whose gradients have been made: parameters of the operations that say
    them; ``backward_end_bytes`` are live when the last of all gradients is made. ``keeps_input``
    says whether the block's input is needed after its forward, ``output_only_bytes`` are those of
    the output where only the next block can need them; ``cached_bytes`` are no part of what is
    retained, and live to the end of the whole forward; ``graph_bytes`` are part of what is
    retained, and stay as long as something names the graph; ``host_bytes`` wait on the host.
    ``flops`` and ``moved_bytes`` are those of the recomputation, ``work`` the same per operation.
    """

    name: str
    retained_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    flops: int
    moved_bytes: int
    work: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    backward_points: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    backward_end_bytes: int = 0
    keeps_input: bool = True
    output_only_bytes: int = 0
    cached_bytes: int = 0
    host_bytes: int = 0
    graph_bytes: int = 0


def measure(tape: Tape, *, save: bool, recompute_scope: str = "") -> OptionRow:
    """Simulate one option: save all, save all but ``recompute_scope``, or recompute all."""
    if not save:
        return measure_regions(tape, regions.whole(tape.operations), name="recompute")
    if not recompute_scope:
        return measure_regions(tape, (), name="save")
    parts = regions.scoped(tape.operations, recompute_scope)
    return measure_regions(tape, parts, name="selective" if parts else "save")


def measure_regions(tape: Tape, parts: Sequence[Region], *, name: str) -> OptionRow:
    """Simulate a block of which some regions run again in backward."""
    again = frozenset(each for part in parts for each in part.names)
    saved = regions.kept(tape.operations, parts)
    work = tuple((op.flops, op.moved_bytes) for op in tape.operations if op.name in again)
    backward = _backward(tape, saved, parts)
    return OptionRow(
        name=name,
        retained_bytes=tape.size_of(saved | {tape.output}),
        forward_peak_bytes=_forward(tape, tape.operations, saved | {tape.output}),
        backward_peak_bytes=backward.peak,
        flops=sum(flops for flops, _ in work),
        moved_bytes=sum(moved for _, moved in work),
        work=work,
        backward_points=tuple(backward.points),
        backward_end_bytes=backward.end_bytes,
        keeps_input=tape.input in saved,
        output_only_bytes=0 if tape.output in saved else tape.size_of({tape.output}),
        cached_bytes=tape.size_of(set(tape.cached) - saved),
        graph_bytes=tape.size_of(saved.intersection(tape.attributes)),
    )


def saved_storages(tape: Tape) -> frozenset[str]:
    """Return what autograd keeps of the tape, its input included where an operation saves it."""
    return regions.kept(tape.operations, ())


def last_uses(operations: Sequence[Operation]) -> dict[str, int]:
    """Say at which operation each storage is named for the last time, other than by a save."""
    last: dict[str, int] = {}
    for index, op in enumerate(operations):
        for names in (op.writes, op.reads, op.holds):
            for name in names:
                last[name] = index
    return last


def _forward(
    tape: Tape, operations: tuple[Operation, ...], kept: frozenset[str], live: int = 0
) -> int:
    """Return the highest live bytes of a forward run that starts with ``live`` bytes."""
    dying: list[int] = [0] * len(operations)
    written = {name for op in operations for name in op.writes}
    for name, index in last_uses(operations).items():
        if name not in kept and name in written:
            dying[index] += tape.storages[name].size_bytes
    peak = live
    for index, op in enumerate(operations):
        live += sum(tape.storages[name].size_bytes for name in op.writes)
        peak = max(peak, live + op.forward_scratch_bytes)
        live -= dying[index]
    return peak


def _backward(tape: Tape, saved: frozenset[str], parts: Sequence[Region]) -> "_Backward":
    """Run from the arrival of the output's gradient to that of the input's."""
    run = _Backward(tape, saved)
    rebuilt = regions.rebuilt_at(tape.operations, parts)
    for index in range(len(tape.operations) - 1, -1, -1):
        for part in rebuilt.get(index, ()):
            run.rebuild(part)
        run.step(index, tape.operations[index])
    return run


class _Backward:
    """The live bytes of a backward run: saved storages, and gradients with their owners."""

    def __init__(self, tape: Tape, saved: frozenset[str]) -> None:
        self.tape = tape
        self.saved = set(saved - {tape.input})
        self.gradients: dict[str, int] = {}  # storage name -> id of the gradient it owns
        self.owners: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        self.live = tape.size_of(self.saved)
        self.first_saver: dict[str, int] = {}
        for index, op in enumerate(tape.operations):
            for name in op.saves:
                self.first_saver.setdefault(name, index)
        self.gradients[tape.output] = self.create(tape.storages[tape.output].gradient_bytes)
        for name in tape.outer:
            self.gradients[name] = self.create(tape.storages[name].gradient_bytes)
        self.peak = 0
        self.parameter_bytes = 0
        self.points: list[tuple[int, int]] = []
        self.end_bytes = 0
        self.note(self.live)

    def note(self, live_bytes: int) -> None:
        """Take down a moment; earlier ones that are nowhere above it are dropped."""
        self.peak = max(self.peak, live_bytes)
        self.end_bytes = live_bytes
        while self.points and self.points[-1][0] <= live_bytes:
            self.points.pop()
        self.points.append((live_bytes, self.parameter_bytes))

    def create(self, size_bytes: int) -> int:
        """Make a gradient with one owner; return its id."""
        key = len(self.bytes)
        self.bytes[key] = size_bytes
        self.owners[key] = 1
        self.live += size_bytes
        return key

    def drop(self, key: int) -> None:
        """Take one owner away; free the gradient with its last."""
        self.owners[key] -= 1
        if not self.owners[key]:
            self.live -= self.bytes[key]

    def rebuild(self, part: Region) -> None:
        """Run a region forward again, keeping what it saves, and what was dropped of its result."""
        operations = tuple(op for op in self.tape.operations if op.name in part.names)
        kept = frozenset(name for op in operations for name in op.saves)
        if part.drops_result:
            kept |= self.first_saver.keys() & {name for op in operations for name in op.writes}
        self.note(_forward(self.tape, operations, kept | part.alive, self.live))
        new = kept - self.saved - {self.tape.input}
        self.saved |= new
        self.live += self.tape.size_of(new)

    def step(self, index: int, op: Operation) -> None:
        """Run one operation's backward; a result without a gradient has none to hand on."""
        arrived = [self.gradients.pop(name) for name in op.writes if name in self.gradients]
        made = self.differentiate(op, arrived) if arrived else []
        if arrived:
            self.parameter_bytes += op.parameter_bytes
            self.note(self.live + op.backward_scratch_bytes)
        for key in arrived:
            self.drop(key)
        for name in set(op.saves):
            if name in self.saved and self.first_saver[name] == index:
                self.saved.remove(name)
                self.live -= self.tape.storages[name].size_bytes
        for name, key in made:
            self.accumulate(name, key)

    def differentiate(self, op: Operation, arrived: list[int]) -> list[tuple[str, int]]:
        """Make the gradient of every storage that the operation reads, or hand its own on."""
        made = []
        for name in dict.fromkeys(op.reads):
            size_bytes = self.tape.storages[name].gradient_bytes
            if not size_bytes:
                continue
            if op.passes_gradient:
                self.owners[arrived[0]] += 1
                made.append((name, arrived[0]))
            else:
                made.append((name, self.create(size_bytes)))
        return made

    def accumulate(self, name: str, key: int) -> None:
        """Add a gradient to the one that is there, in a new buffer; both are then dropped."""
        earlier = self.gradients.get(name)
        if earlier is None:
            self.gradients[name] = key
            return
        self.gradients[name] = self.create(self.bytes[key])
        self.note(self.live)
        self.drop(earlier)
        self.drop(key)
