"""Which part a tensor between two blocks is charged to: who makes it, or who was given it.

A block's result is there until the backward if the block keeps it, or the next one does. Each by
its own option: so it is charged to the taker where only takers keep it, and to nobody where it
passes by. Where both may keep it, it is charged to its maker, whatever the options.
"""

from collections.abc import Collection, Iterable, Mapping

from haversack.torch.storages import Event, Made

Place = tuple[int, int]


class Owners:
    """Answers for one run; ``passing`` are tensors that nobody keeps if all blocks are saved.

    ``open_parts`` are the blocks that have a choice, ``again`` those of them that run again in this
    run, ``policies`` what those that are selective save.
    """

    def __init__(
        self,
        open_parts: Collection[int],
        again: Collection[int],
        passing: Collection[Place],
        policies: Mapping[int, Collection[tuple[str, int]]],
    ) -> None:
        self._open_parts = open_parts
        self._again = again
        self._passing = passing
        self._policies = policies

    def of(self, made: Made) -> int | None:
        """Name the part that retains a tensor of the forward; None if it only passes by."""
        takers = {part: place for part, place in made.takers if part in self._open_parts}
        if not takers:
            return made.part if made.is_kept else None
        taker, place = next(iter(takers.items()))
        if len(takers) > 1 or (taker, place) not in self._passing:
            return made.part
        if not made.is_kept:
            return None
        return made.part if self._is_saved(made) and taker not in self._again else taker

    def also(self, made: Made) -> int | None:
        """Name the part that is charged with a tensor beside the one that retains it, if any is."""
        owner = self.of(made)
        is_both = owner not in (None, made.part) and self._is_saved(made)
        return made.part if is_both else None

    def _is_saved(self, made: Made) -> bool:
        """Whether a policy of its maker saves a tensor."""
        return made.maker in self._policies.get(made.part, ())

    def charged_takers(self, events: Iterable[Event]) -> set[int]:
        """Find the parts that retain what another part made."""
        made = [each.made for each in events if each.made.is_kept]
        owners = ((self.of(each), each.part) for each in made)
        return {owner for owner, maker in owners if owner is not None and owner != maker}


def passing_places(events: Iterable[Event]) -> set[Place]:
    """Find the arguments that nobody keeps in this step, in which all blocks are saved."""
    return {
        place
        for event in events
        for place in event.made.takers
        if event.made.freed_in_backward is False
    }
