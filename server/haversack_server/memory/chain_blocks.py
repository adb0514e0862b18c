"""The blocks of a chain, from option tables and unit states: the one place that joins the two.

Knows what is wrapped as one unit, whose gradients a tied weight's are, and which block needs the
output of the one before. Knows no schedule.

An option table counts a block's output with the block. Where the next block does not need it for
its backward (a norm that keeps its own copy in fp32), autograd frees it after the next forward; so
the chain moves it to the options of the next block that do keep their input.
"""

from collections.abc import Sequence

from haversack.parallelism import Parallelism, Sharding, WrapPolicy
from haversack_server.memory.architecture import UnitKind
from haversack_server.memory.chain import ChainBlock, Option
from haversack_server.memory.options import BlockOptions, roofline_ns
from haversack_server.memory.states import UnitStates
from haversack_server.memory.tape import OptionRow

Rates = tuple[int, int]


class BlockMaker:
    """Makes the blocks of one run; ``compute_bytes`` is the size of a number in backward."""

    def __init__(
        self, parallelism: Parallelism, rates: Rates, accumulation: int, compute_bytes: int
    ) -> None:
        wraps = parallelism.sharding in (Sharding.FSDP1, Sharding.FSDP2)
        self._layers_per_unit = (wraps and parallelism.layers_per_unit) or 1
        self._wraps_layers_only = wraps and parallelism.wrap is WrapPolicy.LAYERS
        self._stages = parallelism.pp or 1
        self._rates = rates
        self._accumulation = accumulation
        self._compute_bytes = compute_bytes
        # Blocks of one kind share their rows, so each row is turned into an option once.
        self._options: dict[tuple[int, int, int, bool], tuple[Option, ...]] = {}

    def blocks(
        self, table: Sequence[BlockOptions], units: Sequence[UnitStates], tied: bool
    ) -> tuple[ChainBlock, ...]:
        """Join each unit's options and states."""
        weight = units[0].parameters[0][0] if tied and units[0].parameters else 0
        moved = self._moved_outputs(table)
        made: list[ChainBlock] = []
        layers = 0
        for index, (block, unit) in enumerate(zip(table, units, strict=True)):
            is_layer, is_head = block.kind is UnitKind.LAYER, block.kind is UnitKind.HEAD
            elements = unit.elements + (weight if is_head else 0)
            made.append(
                ChainBlock(
                    name=block.name,
                    unit=unit,
                    options=self._made(block.options, elements, moved[index], moved[index + 1] > 0),
                    is_head=is_head,
                    held_by_caller_bytes=block.held_by_caller_bytes,
                    # A tied weight is one parameter: embedding and head are gathered together.
                    root=not is_layer and (tied or self._wraps_layers_only),
                    joins_unit_before=is_layer and layers % self._layers_per_unit != 0,
                    input_gradient_bytes=block.input_bytes if index else 0,
                    output_gradient_bytes=block.output_bytes,
                    passing_input_bytes=moved[index],
                    tied_elements=weight if is_head else 0,
                    again_elements=0 if index else weight,
                )
            )
            layers += is_layer
        return tuple(made)

    def _moved_outputs(self, table: Sequence[BlockOptions]) -> list[int]:
        """Bytes of each block's input that the block before does not retain, and a last 0.

        The ends of pipeline stages, and stacks whose outputs are needed further on, keep all.
        """
        stacks = sum(block.kind is UnitKind.EMBEDDING for block in table)
        moved = [0] * (len(table) + 1)
        if self._stages > 1 or stacks > 1:
            return moved
        rows = {id(block.options): block.options for block in table}
        alone = {key: {row.output_only_bytes for row in each} for key, each in rows.items()}
        for index in range(1, len(table)):
            size_bytes, before = table[index].input_bytes, table[index - 1]
            if alone[id(before.options)] == {size_bytes}:
                moved[index] = size_bytes
        return moved

    def _made(
        self, rows: tuple[OptionRow, ...], elements: int, input_bytes: int, moves_output: bool
    ) -> tuple[Option, ...]:
        key = (id(rows), elements, input_bytes, moves_output)
        if key not in self._options:
            self._options[key] = tuple(
                self._option(row, elements, input_bytes, moves_output) for row in rows
            )
        return self._options[key]

    def _option(
        self, row: OptionRow, elements: int, input_bytes: int, moves_output: bool
    ) -> Option:
        kept = input_bytes if row.keeps_input else 0
        retained = row.retained_bytes + kept - (row.output_only_bytes if moves_output else 0)
        points = [(live + kept, size // self._compute_bytes) for live, size in row.backward_points]
        return Option(
            name=row.name,
            retained_bytes=retained,
            # A block can never peak below what it retains.
            forward_peak_bytes=max(row.forward_peak_bytes, row.retained_bytes) + input_bytes,
            backward_peak_bytes=max(row.backward_peak_bytes + kept, retained),
            backward_points=(*points, (row.backward_end_bytes + kept, elements)),
            extra_ns=roofline_ns(row, *self._rates) * self._accumulation,
            cached_bytes=row.cached_bytes,
            graph_bytes=row.graph_bytes,
            host_bytes=row.host_bytes,
        )
