"""Equal treatment across the stages of a pipeline: blocks of one class alike, on every rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from haversack.plan import PeakAt
from haversack_server.memory.timeline import timeline
from haversack_server.plan.one_stage import Choice
from haversack_server.plan.places import peak_at
from haversack_server.plan.stages import Planned, Stage
from haversack_server.plan.symmetric import Alike, EqualTreatment


@dataclass(frozen=True, slots=True)
class AlikeStages:
    """The choices that treat equal blocks of all stages alike."""

    stages: tuple[Stage, ...]
    choices: EqualTreatment

    def floor(self) -> Alike:
        """Give the choice with the least peak."""
        return self.choices.floor()

    def planned(self, budget_bytes: int) -> tuple[Planned, ...]:
        """Give every stage its part of the cheapest choice that fits."""
        rows = _by_stage(self.stages, self.choices.solve(budget_bytes).options)
        made = []
        for stage, options in zip(self.stages, rows, strict=True):
            blocks = zip(stage.chain.blocks, options, strict=True)
            extra = sum(block.options[index].extra_ns for block, index in blocks)
            made.append(Planned(stage, Choice(options, extra, extra)))
        return tuple(made)


def alike(stages: Sequence[Stage]) -> AlikeStages:
    """Take blocks with the same options for equal, as layers of one kind are."""
    blocks = [block for stage in stages for block in stage.chain.blocks]

    def peak(options: tuple[int, ...]) -> int:
        rows = zip(stages, _by_stage(stages, options), strict=True)
        return max(stage.search.peak(own) for stage, own in rows)

    classes = [id(block.options) for block in blocks]
    return AlikeStages(
        tuple(stages), EqualTreatment(classes, [block.options for block in blocks], peak)
    )


def rank_alike(stages: Sequence[Stage], choice: Alike) -> tuple[int, PeakAt]:
    """Find the highest peak of a choice over all stages, and where it is."""
    rows = _by_stage(stages, choice.options)
    lines = [
        timeline(stage.chain, own, whole=False) for stage, own in zip(stages, rows, strict=True)
    ]
    place = max(range(len(lines)), key=lambda each: lines[each].peak.allocated_bytes)
    return lines[place].peak.allocated_bytes, peak_at(stages[place].chain, lines[place])


def _by_stage(stages: Sequence[Stage], options: Sequence[int]) -> list[tuple[int, ...]]:
    found, start = [], 0
    for stage in stages:
        stop = start + len(stage.chain.blocks)
        found.append(tuple(options[start:stop]))
        start = stop
    return found
