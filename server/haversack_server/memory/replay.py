"""Steps of a run as requests to a caching allocator: what it then holds is what is reserved.

Parameters, then for each step every block forward and backward as its tape has it, gradients of
parameters as they are made, the optimizer's moments in the first step. Gradients are freed after a
step, and so is what the caller holds of the output. Knows one rank that holds everything whole;
the order of requests is that of Hugging Face models in eager PyTorch, one stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from haversack_server.memory.caching_allocator import CachingAllocator
from haversack_server.memory.model_run import ModelRun
from haversack_server.memory.options import tape_of
from haversack_server.memory.parts import FLOAT_BYTES
from haversack_server.memory.replayed_memory import Gradients, Memory, Tensor
from haversack_server.memory.stopping import Stop, go_on
from haversack_server.memory.tape import Operation, Tape, last_uses

STEPS = 3  # the second needs more than the first, and the third shows that no step after does
RECOMPUTE = "recompute"
_LOGITS = "logits #"  # names of storages that the caller may hold begin so


def replay(run: ModelRun, choice: Sequence[int], stop: Stop) -> CachingAllocator:
    """Run the steps of a model on one rank, with the option of each block by its index.

    Raises what ``go_on`` does, asked before every block.
    """
    memory, recipe = Memory(run.chain.workspace_bytes // 2), run.chain.recipe
    sizes = _parameters(run)
    for each in (recipe.parameter, recipe.master):
        for elements in sizes if each else ():
            memory.new(elements * each)
    for step in range(STEPS):
        blocks = _forward(memory, run, choice, stop)
        gradients = _backward(memory, run, blocks, stop)
        if not step:
            _make_moments(memory, run, sizes)
        _update(memory, run, sizes)
        for block in blocks:
            block.forget()
        gradients.free()
    return memory.allocator


def _parameters(run: ModelRun) -> list[int]:
    return [elements for block in run.chain.blocks for elements, _ in block.unit.parameters]


def _make_moments(memory: Memory, run: ModelRun, sizes: Sequence[int]) -> None:
    """Every moment of a parameter, then those of the next."""
    recipe = run.chain.recipe
    for elements in sizes:
        for _ in range((recipe.moments or 0) // recipe.moment if recipe.moment else 0):
            memory.new(elements * recipe.moment)


def _update(memory: Memory, run: ModelRun, sizes: Sequence[int]) -> None:
    """Make the optimizer's temporaries, one for each parameter, and free them."""
    total, whole = run.chain.states.temporary_bytes, sum(sizes)
    shares = [total * elements // whole for elements in sizes]
    memory.drop(*(memory.new(share) for share in shares if share))


def _forward(memory: Memory, run: ModelRun, choice: Sequence[int], stop: Stop) -> "list[_Block]":
    stream = memory.new(run.chain.batch_bytes)
    memory.work_forward()
    blocks: list[_Block] = []
    for unit, block, index in zip(run.architecture.units, run.chain.blocks, choice, strict=True):
        go_on(stop)
        model = unit.variant or run.architecture
        tape = tape_of(unit.kind, model, run.profile, run.shape)
        made = _Block(memory, tape, stream, block.options[index].name == RECOMPUTE)
        output = made.forward()
        memory.drop(stream)
        blocks.append(made)
        stream = output
    memory.drop(stream)
    return blocks


def _backward(memory: Memory, run: ModelRun, blocks: "Sequence[_Block]", stop: Stop) -> Gradients:
    """Differentiate from the loss on; what no product makes of a block's gradients comes last."""
    gradients, arriving = Gradients(memory), memory.new(FLOAT_BYTES)
    each = run.chain.recipe.gradient
    for block, made in zip(reversed(run.chain.blocks), reversed(blocks), strict=True):
        go_on(stop)
        arriving = made.backward(arriving, gradients) or arriving
        # A tied weight's second gradient is added into the first, and freed.
        memory.passing(block.again_elements * each)
        gradients.make(block.made_elements * each - made.parameter_bytes)
    return gradients


@dataclass(slots=True)
class _Block:
    """One block of one microbatch, between its forward and its backward."""

    memory: Memory
    tape: Tape
    source: Tensor
    recomputes: bool
    saved: dict[str, Tensor] = field(default_factory=dict)
    held: list[Tensor] = field(default_factory=list)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the gradients that its products make."""
        return sum(op.parameter_bytes for op in self.tape.operations)

    def forward(self) -> Tensor:
        """Run; return the output, owned by whoever takes it."""
        if not self.recomputes:
            return self._run(self.tape.operations, saves=True)
        self.saved[self.tape.input] = self.memory.hold(self.source)
        return self._run(self.tape.operations, saves=False)

    def forget(self) -> None:
        """Drop what the caller held of the output."""
        self.memory.drop(*self.held)
        self.held.clear()

    def _run(self, operations: Sequence[Operation], *, saves: bool) -> Tensor:
        """Write and free storages in order; the output goes to the caller."""
        memory, tape, ends = self.memory, self.tape, last_uses(operations)
        live = {tape.input: memory.hold(self.source)}
        for index, op in enumerate(operations):
            for name in op.writes:
                if tape.storages[name].size_bytes:
                    live[name] = memory.new(tape.storages[name].size_bytes)
            memory.passing(op.forward_scratch_bytes)
            if saves:
                self._save(op, live)
            dead = [name for name in live if ends.get(name, -1) <= index and name != tape.output]
            memory.drop(*(live.pop(name) for name in dead))
        output = live.pop(tape.output)
        memory.drop(*live.values())
        return output

    def _save(self, op: Operation, live: Mapping[str, Tensor]) -> None:
        for name in dict.fromkeys(op.saves):
            if name in live and name not in self.saved:
                self.saved[name] = self.memory.hold(live[name])
        for name in op.writes:
            if name.startswith(_LOGITS):
                self.held.append(self.memory.hold(live[name]))

    def backward(self, arriving: Tensor, made: Gradients) -> Tensor | None:
        """Differentiate; return the gradient of the input, if there is one."""
        operations = self.tape.operations
        if self.recomputes:
            self._again()
        first: dict[str, int] = {}
        for index, op in enumerate(operations):
            for name in op.saves:
                first.setdefault(name, index)
        gradients = {self.tape.output: arriving}
        for index in range(len(operations) - 1, -1, -1):
            self._differentiate(operations[index], gradients, made)
            for name in dict.fromkeys(operations[index].saves):
                if name in self.saved and first[name] == index:
                    self.memory.drop(self.saved.pop(name))
        self.memory.drop(*self.saved.values())
        self.saved.clear()
        return gradients.pop(self.tape.input, None)

    def _again(self) -> None:
        """Run forward again, up to the last operation that saves something."""
        operations = self.tape.operations
        last = max(index for index, op in enumerate(operations) if op.saves)
        again = list(operations[: last + 1])
        if not any(self.tape.output in op.writes for op in again):
            again.append(Operation(name="output", writes=(self.tape.output,)))
        self.memory.drop(self._run(again, saves=True))

    def _differentiate(self, op: Operation, gradients: dict[str, Tensor], made: Gradients) -> None:
        """Turn the gradients of what an operation wrote into those of what it read."""
        memory = self.memory
        arrived = [gradients.pop(name) for name in op.writes if name in gradients]
        if not arrived:
            return
        if op.flops:
            memory.work_backward()
        found = [(name, self._gradient(op, name, arrived[0])) for name in self._read(op)]
        made.make(op.parameter_bytes)
        memory.passing(op.backward_scratch_bytes)
        memory.drop(*arrived)
        for name, tensor in found:
            gradients[name] = self._added(gradients.get(name), tensor)

    def _read(self, op: Operation) -> Iterator[str]:
        storages = self.tape.storages
        return (name for name in dict.fromkeys(op.reads) if storages[name].gradient_bytes)

    def _gradient(self, op: Operation, name: str, arrived: Tensor) -> Tensor:
        if op.passes_gradient:
            return self.memory.hold(arrived)
        return self.memory.new(self.tape.storages[name].gradient_bytes)

    def _added(self, earlier: Tensor | None, tensor: Tensor) -> Tensor:
        """Add a second gradient of a storage to the first, in a third tensor."""
        if earlier is None:
            return tensor
        both = self.memory.new(tensor.block.size_bytes)
        self.memory.drop(earlier, tensor)
        return both
