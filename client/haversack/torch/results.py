"""What the operations of a block make, of what, and for whom: the graph that policies are cut from.

A result is all storages that one operation makes; views of them are no results of their own. Sizes
and times are for choosing among policies only: what a policy costs is measured when it runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from haversack.torch.leaves import leaves_of
from haversack.torch.occurrences import Occurrence
from haversack.torch.random_operations import draws_random
from haversack.torch.roofline import is_view
from haversack.torch.storages import Made, Record
from haversack.torch.watching import written_to


@dataclass(slots=True)
class Result:
    """One operation's result in a block; ``reads`` are places of results that it is made of.

    ``is_needed``: by the block's own backward, or by what cannot be left out. ``is_fixed``: a
    recomputation has to make it anew, since it is drawn at random or written to after its making.
    """

    occurrence: Occurrence
    size_bytes: int
    time_ns: float
    reads: set[int] = field(default_factory=set)
    is_needed: bool = False
    is_fixed: bool = False


class Results:
    """Listens to a forward: to operations, to what is saved for backward, to what is returned."""

    def __init__(self, record: Record) -> None:
        self.of_block: dict[str, list[Result]] = {}
        self._record = record
        self._places: dict[int, tuple[str, int]] = {}

    def heard(
        self, block: str, occurrence: Occurrence, time_ns: float, call: tuple[Any, ...], result: Any
    ) -> None:
        """Take note of an operation in a block; ``call`` is the operation, args and kwargs."""
        operation, args, kwargs = call
        if is_view(operation):
            return
        reads = self._own(block, (args, kwargs))
        written = self._own(block, written_to(operation, args, kwargs))
        for place in written:
            self._change(self.of_block[block][place], time_ns, reads - {place})
        new = {id(made): made for made in self._made(result) if id(made) not in self._places}
        if new:
            made = Result(occurrence, sum(each.size_bytes for each in new.values()), time_ns, reads)
            made.is_fixed = bool(written) or draws_random(operation, args, kwargs)
            self._add(block, made, new)
        elif not written:
            self._need(block, reads)  # a number is read, or what was given is given back

    def saved(self, block: str, tensor: torch.Tensor) -> None:
        """Take note of a tensor that the block's backward needs."""
        self._need(block, self._own(block, tensor))

    def returned(self, block: str, result: Any) -> None:
        """Count what a block returns as nothing: who is given it keeps it."""
        for made in {id(each): each for each in self._made(result)}.values():
            owner, place = self._places.get(id(made), ("", 0))
            if owner == block:
                self.of_block[block][place].size_bytes -= made.size_bytes

    def _add(self, block: str, result: Result, storages: Iterable[int]) -> None:
        of_block = self.of_block.setdefault(block, [])
        self._places.update((key, (block, len(of_block))) for key in storages)
        of_block.append(result)

    @staticmethod
    def _change(result: Result, time_ns: float, reads: set[int]) -> None:
        result.is_fixed = True
        result.time_ns += time_ns
        result.reads |= reads

    def _need(self, block: str, places: Iterable[int]) -> None:
        for place in places:
            self.of_block[block][place].is_needed = True

    def _own(self, block: str, value: Any) -> set[int]:
        """Find which of the block's results are in a value, as themselves or as views."""
        found = (self._places.get(id(made)) for made in self._made(value))
        return {each[1] for each in found if each is not None and each[0] == block}

    def _made(self, value: Any) -> list[Made]:
        found = map(self._record.made_of, leaves_of(value))
        return [made for made in found if made is not None]
