"""One rank's model as the timeline sees it: a chain of blocks, each with the option it runs.

Estimate gives the options, Plan chooses them; both read the same timeline. Knows no words and no
margins: bytes of live tensors only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from haversack_server.memory.degrees import Degrees
from haversack_server.memory.model_loading import Loading
from haversack_server.memory.moments import Part
from haversack_server.memory.offload import NOTHING, Kept, Offload
from haversack_server.memory.pipeline import Pipeline
from haversack_server.memory.recipe import Recipe
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.memory.states import RankStates, UnitStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a block; a row of its option table, in bytes and nanoseconds.

    ``retained_bytes`` live from the block's forward to its backward, its output included;
    the peaks are the highest bytes that the block adds while it runs, retained bytes included.
    ``backward_points`` are moments of the backward: live bytes, and elements of parameters whose
    gradients have been made by then; without them all gradients are there at the peak.
    ``cached_bytes`` live from the block's forward to the end of the whole forward, beside what is
    retained: autocast's copies of weights. ``graph_bytes`` of what is retained outlive the backward
    where something still names the graph. ``host_bytes`` wait on the host for the backward.
    """

    name: str
    retained_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    extra_ns: int = 0
    backward_points: tuple[tuple[int, int], ...] = ()
    cached_bytes: int = 0
    graph_bytes: int = 0
    host_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBlock:
    """One block: its states, its options, and what the caller keeps of its output.

    ``held_by_caller_bytes`` are part of the option's forward peak; the caller keeps them from then
    to the end of the step, beside the option's other figures. A ``root`` block belongs to the unit
    that stays gathered for the whole microbatch; one that ``joins_unit_before`` is gathered with
    the block before. A tied weight's gradient is made at the head (``tied_elements`` of it) and
    again at the embedding, into a temporary (``again_elements``). ``passing_input_bytes`` are alive
    while the block runs forward, where the blocks before do not retain its input for it.
    """

    name: str
    unit: UnitStates
    options: tuple[Option, ...]
    is_head: bool = False
    held_by_caller_bytes: int = 0
    root: bool = False
    joins_unit_before: bool = False
    input_gradient_bytes: int = 0
    output_gradient_bytes: int = 0
    passing_input_bytes: int = 0
    tied_elements: int = 0
    again_elements: int = 0

    @property
    def made_elements(self) -> int:
        """Elements whose gradients are new after the block's backward."""
        return self.unit.elements + self.tied_elements - self.again_elements

    def backward_point(
        self, option: Option, gradient_each: int, part: Part = Part.ALL
    ) -> tuple[int, int]:
        """Give live bytes and bytes of the block's own gradients where their sum is highest.

        Of a loss, up to the first gradient of a parameter; of the rest, from there.
        """
        everything = self.unit.elements + self.tied_elements
        points = option.backward_points or ((option.backward_peak_bytes, everything),)
        if part is not Part.ALL:
            is_loss = part is Part.LOSS
            points = tuple(point for point in points if (point[1] == 0) is is_loss) or ((0, 0),)
        live, elements = max(points, key=lambda point: point[0] + point[1] * gradient_each)
        return live, elements * gradient_each

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
    ``extra_ns``; 0 where it is not known. ``workspace_bytes`` stand from the first forward on,
    ``batch_bytes`` come with each microbatch. ``graph_outlives_backward``: a variable of the loop
    names the graph of a microbatch until the next one's loss. ``on_the_way_bytes``: what the host
    takes of one layer. ``loading`` is None where making the model takes no more than it is.
    """

    blocks: tuple[ChainBlock, ...]
    states: RankStates
    recipe: Recipe
    degrees: Degrees
    accumulation: int = 1
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    step_ns: int = 0
    workspace_bytes: int = 0
    batch_bytes: int = 0
    gradients_stand: bool = False
    graph_outlives_backward: bool = False
    on_the_way_bytes: int = 0
    pipeline: Pipeline = field(default_factory=Pipeline)
    offload: Offload = NOTHING
    loading: Loading | None = None

    @property
    def kept(self) -> Kept:
        """Where model states stay, and for how long."""
        return Kept(self.offload, self.schedule.updates_in_backward)

    @property
    def weight_copies_bytes(self) -> int:
        """Copies of weights in 8 bits, which stay from the first forward on."""
        each = self.recipe.weight_copies_permille
        if not each:
            return 0
        return -(-sum(unit.multiplied for unit in self.states.units) * each // 1000)

    @property
    def keeps_gradients(self) -> bool:
        """Whether gradients stay on the device until the optimizer's step."""
        return not (self.offload.gradients or self.schedule.updates_in_backward)

    @property
    def named_graph_bytes(self) -> int:
        """What the graph of a microbatch keeps after its backward, where all blocks are saved."""
        if not self.graph_outlives_backward:
            return 0
        return sum(block.options[0].graph_bytes for block in self.blocks)

    def choice(self, names: Sequence[str]) -> tuple[int, ...]:
        """Turn one option name per block into indices; the names exist."""
        indices = []
        for block, name in zip(self.blocks, names, strict=True):
            index = block.option_index(name)
            if index is None:
                raise KeyError(f"{block.name} has no option {name}")
            indices.append(index)
        return tuple(indices)
