"""Plans by class of equal ranks: each stage of a pipeline has its own, under one budget.

A model without a pipeline is one stage. A stage holds what the microbatches in flight retain, the
first stages most: so they recompute where the last need not. A step waits for its slowest stage,
and the answer's extra time is that of the class that adds most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haversack.errors import InvalidRequestError
from haversack.plan import PeakAt, PlanConstraints, PlanRequest
from haversack.run import BlockAction
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.chain import Chain, Option
from haversack_server.memory.choices import RECOMPUTE, SAVE, whole_layers
from haversack_server.memory.model_run import ModelRun
from haversack_server.memory.ranks import RankLine, rank_lines
from haversack_server.memory.timeline import Timeline, timeline
from haversack_server.plan.constraints import constrained
from haversack_server.plan.in_flight import InFlight
from haversack_server.plan.limits import STATE_LIMIT
from haversack_server.plan.one_stage import Choice, OneStage
from haversack_server.plan.places import peak_at
from haversack_server.plan.solving import Solving


@dataclass(frozen=True, slots=True)
class Stage:
    """A class of equal ranks: what is known of it, and its search."""

    ranks: RankLine
    search: InFlight | OneStage
    floor_bytes: int
    floor_options: tuple[int, ...]

    @property
    def chain(self) -> Chain:
        """Its blocks, states and passes."""
        return self.ranks.chain

    def floor_line(self) -> Timeline:
        """Lay the plan with the least peak onto the timeline."""
        return timeline(self.chain, self.floor_options)

    def everything_bytes(self) -> int:
        """The peak with everything saved."""
        return timeline(self.chain, [0] * len(self.chain.blocks)).peak.allocated_bytes


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage with its options."""

    stage: Stage
    choice: Choice

    @property
    def line(self) -> Timeline:
        """Lay the options onto the timeline, as Estimate does."""
        return timeline(self.stage.chain, self.choice.options)

    @property
    def rows(self) -> list[Option]:
        """The chosen options."""
        blocks = self.stage.chain.blocks
        return [
            block.options[index] for block, index in zip(blocks, self.choice.options, strict=True)
        ]

    @property
    def saved_count(self) -> int:
        """Count the blocks that are simply saved."""
        return sum(row.name == SAVE for row in self.rows)

    @property
    def recomputed_count(self) -> int:
        """Count the others."""
        return len(self.rows) - self.saved_count

    @property
    def retained_bytes(self) -> int:
        """Add up what one microbatch keeps from forward to backward."""
        return sum(row.retained_bytes for row in self.rows)

    @property
    def all_recomputed_ns(self) -> int:
        """Extra time were every block recomputed that can be."""
        blocks = self.stage.chain.blocks
        return sum(max(row.extra_ns for row in block.options) for block in blocks)


def stages_of(request: PlanRequest, run: ModelRun, solving: Solving) -> tuple[Stage, ...]:
    """Group the stages into classes of equal ranks, and find the floor of each."""
    constrained(whole_layers(run.chain), request.constraints)  # refuses with the caller's places
    chains = _with_choices(run.stages, request.constraints)
    for chain in chains:
        check_bounds(chain)
    saved = [[0] * len(chain.blocks) for chain in chains]
    found = []
    for ranks in rank_lines(chains, saved, whole=False):
        search = _search(ranks.chain, request.state_limit or STATE_LIMIT, solving)
        floor_bytes, options = search.floor()
        found.append(Stage(ranks, search, floor_bytes, options))
    return tuple(found)


def _search(chain: Chain, state_limit: int, solving: Solving) -> InFlight | OneStage:
    if chain.pipeline.stages == 1:
        return OneStage(chain, state_limit, solving)
    return InFlight(chain, state_limit, solving.cancel)


def asked_for(request: PlanRequest, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Give the class of the rank that is asked for; all of them if none is."""
    if request.rank is None:
        return tuple(stages)
    ranks = stages[0].chain.degrees.world_size
    if request.rank >= ranks:
        raise InvalidRequestError(
            f"{request.rank} is none of the run's {ranks} ranks, which count from 0",
            field="rank",
        )
    each = ranks // stages[0].chain.pipeline.stages
    return tuple(stage for stage in stages if request.rank // each in stage.ranks.stages)


def highest_floor(stages: Sequence[Stage]) -> tuple[int, PeakAt]:
    """Find the class whose least peak is the highest, and where that is."""
    stage = max(stages, key=lambda each: each.floor_bytes)
    return stage.floor_bytes, peak_at(stage.chain, stage.floor_line())


def planned(stages: Sequence[Stage], budget_bytes: int) -> tuple[Planned, ...]:
    """Choose the options of every class; the budget is not below the floor of any."""
    return tuple(Planned(stage, stage.search.solve(budget_bytes)) for stage in stages)


def actions_of(run: ModelRun, plans: Sequence[Planned]) -> tuple[BlockAction, ...]:
    """Give an action for each block, stage by stage; equal stages have equal ones."""
    by_stage = {number: each for each in plans for number in each.stage.ranks.stages}
    made = {}
    for number, planned_stage in by_stage.items():
        rows = planned_stage.stage.chain.blocks
        for block, row, index in zip(
            run.stages[number].blocks, rows, planned_stage.choice.options, strict=True
        ):
            action = BlockAction(block=block.name, option=row.options[index].name)
            made[block.name] = action
    return tuple(made[block.name] for block in run.chain.blocks if block.name in made)


def _with_choices(
    chains: Sequence[Chain], constraints: PlanConstraints | None
) -> tuple[Chain, ...]:
    """Leave what treats a block as a whole, and what the constraints allow.

    Stages share the options that they shared before, by which equal ones are known.
    """
    kept: dict[int, tuple[Option, ...]] = {}
    for chain in chains:
        for block in chain.blocks:
            whole = tuple(each for each in block.options if each.name in (SAVE, RECOMPUTE))
            kept.setdefault(id(block.options), whole)
    made = []
    for chain in chains:
        blocks = [replace(each, options=kept[id(each.options)]) for each in chain.blocks]
        own = _of_stage(constraints, {block.name for block in blocks})
        made.append(constrained(replace(chain, blocks=tuple(blocks)), own))
    return tuple(made)


def _of_stage(constraints: PlanConstraints | None, names: set[str]) -> PlanConstraints | None:
    if constraints is None:
        return None
    own = replace(
        constraints,
        must_save=tuple(each for each in constraints.must_save if each in names),
        must_recompute=tuple(each for each in constraints.must_recompute if each in names),
    )
    return own if own.must_save or own.must_recompute else None
