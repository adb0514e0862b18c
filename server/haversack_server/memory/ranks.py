"""Classes of equal ranks: the stages of a pipeline, each with its own timeline.

Ranks of one stage are equal: tensor, context and data parallelism divide evenly and pad, and the
load of experts is taken as it is stated. Stages whose chains are equal are one class; classes are
never averaged. Ranks are numbered as Megatron-LM does (megatron/core/parallel_state.py, order
tp-cp-ep-dp-pp) and as PyTorch's device meshes of torchtitan: the pipeline is the slowest axis, so
stage p has the ranks from p * world / P on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haversack_server.memory.chain import Chain, ChainBlock
from haversack_server.memory.moved_activations import on_host
from haversack_server.memory.states import UnitStates
from haversack_server.memory.timeline import Timeline, timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLine:
    """The equal ranks of some stages: their chain, and its timeline."""

    stages: tuple[int, ...]
    chain: Chain
    line: Timeline

    @property
    def name(self) -> str:
        """The class in words."""
        if self.chain.pipeline.stages == 1:
            return "every rank"
        first, last = self.stages[0], self.stages[-1]
        if len(self.stages) == 1:
            return f"stage {first}"
        if last - first == len(self.stages) - 1:
            return f"stages {first} to {last}"
        return f"stages {', '.join(map(str, self.stages))}"

    @property
    def first_rank(self) -> int:
        """The lowest rank of the class."""
        return self.stages[0] * self._ranks_of_a_stage

    @property
    def rank_count(self) -> int:
        """Count the ranks of the class."""
        return len(self.stages) * self._ranks_of_a_stage

    @property
    def peak_bytes(self) -> int:
        """Highest allocated bytes on each of them."""
        return self.line.peak.allocated_bytes

    @property
    def between_steps_bytes(self) -> int:
        """Allocated bytes between two steps: states, and what stands beside them.

        Gradients count where the framework keeps their buffers.
        """
        states = self.chain.states
        freed = 0 if self.chain.gradients_stand else states.gradient_bytes
        parked = self.chain.pipeline.between_steps_bytes(self.chain.accumulation)
        standing = self.chain.workspace_bytes + self.chain.weight_copies_bytes
        return states.steady_bytes - freed + parked + standing

    @property
    def host_bytes(self) -> int:
        """Bytes that each of them keeps on the host, or may have paged out to it."""
        return self.chain.states.host.total_bytes

    @property
    def _ranks_of_a_stage(self) -> int:
        return self.chain.degrees.world_size // self.chain.pipeline.stages


def rank_lines(
    chains: Sequence[Chain], choices: Sequence[Sequence[int]], *, whole: bool = True
) -> tuple[RankLine, ...]:
    """Lay every stage onto its timeline; equal stages are one class, in the order of stages.

    If not ``whole``, timelines have the highest moment of each phase only.
    """
    classes: dict[object, list[int]] = {}
    for stage, (chain, choice) in enumerate(zip(chains, choices, strict=True)):
        likeness = _likeness(chain, choice) if len(chains) > 1 else stage
        classes.setdefault(likeness, []).append(stage)
    return tuple(
        RankLine(
            stages=tuple(stages),
            chain=with_host_activations(chains[stages[0]], choices[stages[0]]),
            line=timeline(chains[stages[0]], choices[stages[0]], whole=whole),
        )
        for stages in classes.values()
    )


def with_host_activations(chain: Chain, choice: Sequence[int]) -> Chain:
    """Add to a chain's states what its activations take of the host."""
    size_bytes = on_host(chain, choice)
    if not size_bytes:
        return chain
    host = replace(chain.states.host, activation_bytes=size_bytes)
    return replace(chain, states=replace(chain.states, host=host))


def fullest(lines: Sequence[RankLine]) -> RankLine:
    """Give the class with the highest peak; the first of equals."""
    return max(lines, key=lambda line: line.peak_bytes)


def _likeness(chain: Chain, choice: Sequence[int]) -> object:
    """What two chains have alike if their timelines are: all but names and the stage's number."""
    blocks = tuple(
        (id(block.options), replace(block, name="", options=(), unit=_unnamed(block)), option)
        for block, option in zip(chain.blocks, choice, strict=True)
    )
    pipeline = chain.pipeline
    return blocks, replace(pipeline, stage=0), pipeline.warm_up(chain.accumulation)


def _unnamed(block: ChainBlock) -> UnitStates:
    return replace(block.unit, name="")
