"""Parameters of a profile, divided over ranks as FSDP2 does: by rows, padded to the largest shard.

Elements are bytes where a profile has no widths. Knows no order of a step.
"""

from collections.abc import Iterable

from haversack.errors import InvalidRequestError
from haversack.profile import Profile, ProfileParameter
from haversack_server.memory.states import UnitStates


class Divided:
    """Bytes of a profile's parameters: whole, and the part of rank 0."""

    def __init__(self, profile: Profile, ranks: int, width: int = 1) -> None:
        """Divide over ``ranks``; an element has ``width`` bytes where it is stored."""
        _check(profile)
        self._ranks = ranks
        self._width = width
        every = [each for block in profile.blocks for each in block.parameters]
        trained = [each for each in every if not each.frozen]
        self.whole_bytes = sum(map(_whole, every))
        self.shard_bytes = sum(map(self._shard, every))
        self.trained_shard_bytes = sum(map(self._shard, trained))
        self.trained_bytes = sum(map(_whole, trained))
        self._largest_bytes = max(map(_whole, trained), default=0)
        self._largest_shard_bytes = max(map(self._shard, trained), default=0)

    def unit(self, name: str, parameters: Iterable[ProfileParameter]) -> UnitStates:
        """Give the sizes of a unit in elements."""
        every, width = list(parameters), self._width
        shard = sum(map(self._shard, every)) // width
        return UnitStates(
            name=name,
            whole=shard * self._ranks,
            shard=shard,
            unpadded=sum(_whole(each) for each in every if not each.frozen) // width,
            frozen_shard=sum(self._shard(each) for each in every if each.frozen) // width,
        )

    def of_state(self, state_bytes: int) -> int:
        """Divide what the optimizer has whole copies of; what is left over is on every rank."""
        if not self.trained_bytes:
            return state_bytes
        copies, rest = divmod(state_bytes, self.trained_bytes)
        return copies * self.trained_shard_bytes + rest

    def of_step(self, step_bytes: int) -> int:
        """Divide what the step adds: as all parameters are, or worse, as the largest are."""
        if not self.trained_bytes:
            return step_bytes
        shares = (
            (self.trained_shard_bytes, self.trained_bytes),
            # Padding may make another one the largest than is the largest when whole.
            (self._largest_shard_bytes, self._largest_bytes),
        )
        return max(-(-step_bytes * part // whole) for part, whole in shares)

    def _shard(self, parameter: ProfileParameter) -> int:
        return -(-parameter.rows // self._ranks) * parameter.row_bytes


def _whole(parameter: ProfileParameter) -> int:
    return parameter.rows * parameter.row_bytes


def _check(profile: Profile) -> None:
    if not any(block.parameter_bytes for block in profile.blocks):
        raise InvalidRequestError(
            "the profile has no parameters that ranks could divide; plan for one rank",
            field="profile.blocks",
        )
    for place, block in enumerate(profile.blocks):
        if sum(map(_whole, block.parameters)) != block.parameter_bytes:
            raise InvalidRequestError(
                f"{block.name} has parameters that the profile cannot divide, such as one that "
                "another block has too; plan for one rank, or profile other blocks",
                field=f"profile.blocks[{place}].parameters",
            )
