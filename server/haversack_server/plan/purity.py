"""What a profile's flags forbid: a block whose second run would not be the first one again.

A client's profile leaves such options out of its tables. A profile may come from elsewhere, or have
been edited, so the planner asks again.
"""

from collections.abc import Mapping

from haversack.errors import InvalidRequestError
from haversack.plan import PlanConstraints
from haversack.profile import Profile, ProfileBlock
from haversack_server.memory.chain import Option

Options = tuple[Option, ...]


def why_saved(block: ProfileBlock) -> str:
    """Say why a block can only be saved; nothing if it may run twice."""
    if block.mutated_buffers:
        return f"it would change its buffers twice ({', '.join(block.mutated_buffers[:3])})"
    if block.has_collectives:
        return "it would repeat its collectives"
    return "it changes its input in place" if block.mutates_inputs else ""


def pure(profile: Profile, options: Mapping[str, Options]) -> dict[str, Options]:
    """Leave only ``save`` to the blocks that may not run twice."""
    left = dict(options)
    for place, block in enumerate(profile.blocks):
        reason = why_saved(block)
        if reason:
            saved = tuple(each for each in options[block.name] if each.name == "save")
            if not saved:
                raise InvalidRequestError(
                    f"{block.name} cannot be recomputed: {reason}; its table has no option save",
                    field=f"profile.blocks[{place}].table",
                )
            left[block.name] = saved
    return left


def check_must_recompute(profile: Profile, constraints: PlanConstraints | None) -> None:
    """Refuse to recompute what may not run twice, with the reason."""
    reasons = {block.name: why_saved(block) for block in profile.blocks}
    for place, name in enumerate(constraints.must_recompute if constraints else ()):
        if reasons.get(name):
            raise InvalidRequestError(
                f"{name} cannot be recomputed: {reasons[name]}; leave it out",
                field=f"constraints.must_recompute[{place}]",
            )


def assumed(profile: Profile) -> tuple[str, ...]:
    """Say where figures hold for the profiled data only, and what a replay has to restore."""
    of_data = [block.name for block in profile.blocks if block.data_dependent]
    drawing = sum(block.draws_random for block in profile.blocks)
    said = []
    if of_data:
        said.append(f"data: the figures of {', '.join(of_data[:3])} hold for the profiled data")
    if drawing:
        said.append(f"random numbers: {drawing} blocks draw some; a recomputation draws them again")
    return tuple(said)
