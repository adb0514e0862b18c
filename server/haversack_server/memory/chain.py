"""One rank's model as the timeline sees it: a chain of blocks, each with the option it runs.

Estimate gives the options, Plan chooses them; both read the same timeline. Knows no words and no
margins: bytes of live tensors only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haversack_server.memory.degrees import Degrees
from haversack_server.memory.recipe import Recipe
from haversack_server.memory.states import RankStates, UnitStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a block; a row of its option table, in bytes and nanoseconds.

    ``retained_bytes`` live from the block's forward to its backward, its output included;
    the peaks are the highest bytes that the block adds while it runs, retained bytes included.
    """

    name: str
    retained_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    extra_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBlock:
    """One block: its states, its options, and what the caller keeps of its output.

    ``held_by_caller_bytes`` are part of the option's forward peak; the caller keeps them from then
    to the end of the step, beside the option's other figures. A ``root`` unit is gathered for the
    whole microbatch.
    """

    name: str
    unit: UnitStates
    options: tuple[Option, ...]
    is_head: bool = False
    held_by_caller_bytes: int = 0
    root: bool = False

    def option_index(self, name: str) -> int | None:
        """Find an option of that name."""
        for index, option in enumerate(self.options):
            if option.name == name:
                return index
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The blocks of one rank with the states and settings that surround them.

    ``step_ns`` is the time of a step without recomputation, by the same roofline as the options'
    ``extra_ns``; 0 where it is not known.
    """

    blocks: tuple[ChainBlock, ...]
    states: RankStates
    recipe: Recipe
    degrees: Degrees
    accumulation: int = 1
    prefetch_units: int = 1
    reduce_bucket_elements: int = 0
    step_ns: int = 0

    def choice(self, names: Sequence[str]) -> tuple[int, ...]:
        """Turn one option name per block into indices; the names exist."""
        indices = []
        for block, name in zip(self.blocks, names, strict=True):
            index = block.option_index(name)
            if index is None:
                raise KeyError(f"{block.name} has no option {name}")
            indices.append(index)
        return tuple(indices)
