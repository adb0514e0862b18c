"""Tensors on a caching allocator: each is freed with the last thing that names it.

Knows nothing of tapes; workspaces come with the first product of forward and of backward, since
each has a thread of its own.
"""

from dataclasses import dataclass

from haversack_server.memory.caching_allocator import Block, CachingAllocator


@dataclass(slots=True, eq=False)
class Tensor:
    """A block of the allocator with the number of things that name it."""

    block: Block
    owners: int = 1


class Memory:
    """Makes and frees tensors."""

    def __init__(self, workspace_bytes: int) -> None:
        self.allocator = CachingAllocator()
        self._workspace_bytes = workspace_bytes
        self._working: set[str] = set()

    def new(self, size_bytes: int) -> Tensor:
        """Make a tensor with one owner."""
        return Tensor(self.allocator.take(size_bytes))

    def hold(self, tensor: Tensor) -> Tensor:
        """Add an owner."""
        tensor.owners += 1
        return tensor

    def drop(self, *tensors: Tensor) -> None:
        """Take an owner away from each."""
        for tensor in tensors:
            tensor.owners -= 1
            if not tensor.owners:
                self.allocator.free(tensor.block)

    def passing(self, size_bytes: int) -> None:
        """Take scratch, and free it."""
        if size_bytes > 0:
            self.drop(self.new(size_bytes))

    def work_forward(self) -> None:
        """Make the workspace of the thread of forward, if it is not there."""
        self._work("forward")

    def work_backward(self) -> None:
        """Make the workspace of the thread of backward, if it is not there."""
        self._work("backward")

    def _work(self, thread: str) -> None:
        if thread not in self._working and self._workspace_bytes:
            self.new(self._workspace_bytes)
        self._working.add(thread)


class Gradients:
    """Gradients of parameters, until the optimizer has used them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tensors: list[Tensor] = []

    def make(self, size_bytes: int) -> None:
        """Make one that stays."""
        if size_bytes > 0:
            self._tensors.append(self._memory.new(size_bytes))

    def free(self) -> None:
        """Free all of them."""
        self._memory.drop(*self._tensors)
        self._tensors.clear()
