"""What FSDP1 and FSDP2 have in common: the wrap units of a chain, and the buffers of each."""

from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column
from haversack_server.memory.schedule.fsdp2_buffers import buffers
from haversack_server.memory.schedule.wrapping import root_unit, wrap_units


class Wrapped:
    """A chain whose blocks are gathered unit by unit."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._root = root_unit(chain)
        self._root_sizes = buffers(chain, self._root) if self._root else None
        self._units = wrap_units(chain)
        self._of_block = {block: unit for unit in self._units for block in unit.blocks}
        self._sizes = [buffers(chain, unit) for unit in self._units]

    def standing(self, step: int) -> dict[Column, int]:
        """Give what lives as long as the job: nothing but the shards."""
        return {}

    @property
    def _reshards(self) -> bool:
        return self._chain.schedule.reshard_after_forward
