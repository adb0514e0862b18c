"""The room that a job takes on a Ray cluster: what it needs, who has that, what group holds it.

A placement group is taken for ranks: all that they need, on one machine, at once or not at all, in
the job's name. Knows no actor and no process; is handed ray, and imports it never.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from haversack_server.places import Start
from haversack_server.processes import NotStartedError

_log = logging.getLogger(__name__)


def needs_of(start: Start) -> dict[str, int]:
    """Give what a machine must have free: a job stays together, with all of its GPUs."""
    needs = {"CPU": start.threads * start.ranks}
    return needs if start.device == "cpu" else {**needs, "GPU": start.gpus}


def check_machines(ray: Any, needs: Mapping[str, int]) -> None:
    """Raise NotStartedError if no machine has what is needed, were it free."""
    machines = [each["Resources"] for each in living(ray)]
    if any(all(has.get(kind, 0) >= count for kind, count in needs.items()) for has in machines):
        return
    wanted = " and ".join(f"{count} {kind}" for kind, count in needs.items())
    have = "; ".join(
        " and ".join(f"{has.get(kind, 0):g} {kind}" for kind in needs) for has in machines
    )
    raise NotStartedError(
        f"no machine of the cluster has {wanted}, which the job needs; they have {have or 'none'}"
    )


def living(ray: Any) -> list[Mapping[str, Any]]:
    """List the cluster's machines. Raises NotStartedError where nobody answers."""
    try:
        return [node for node in ray.nodes() if node["Alive"]]
    except ray.exceptions.RayError as lost:
        raise NotStartedError(f"the cluster does not answer: {last_line(lost)}") from lost


class Room:
    """What an actor asks Ray for: of the cluster at large, or of a placement group of its job's."""

    def __init__(self, ray: Any, needs: Mapping[str, int], group: Any = None) -> None:
        self._ray, self._needs, self._group = ray, needs, group

    @classmethod
    async def taken(cls, ray: Any, start: Start) -> "Room":
        """Take a group for ranks, which Ray fills once it can; one process needs none.

        Raises NotStartedError where no machine could ever hold the job.
        """
        needs = needs_of(start)
        await asyncio.to_thread(check_machines, ray, needs)
        if start.ranks == 1:
            return cls(ray, needs)
        # One bundle: Ray lets no actor have more than a bundle holds, nor see another's GPUs.
        making = asyncio.ensure_future(
            asyncio.to_thread(
                ray.util.placement_group,
                [needs],
                strategy="STRICT_PACK",
                name=f"haversack-{start.job_id}",
            )
        )
        try:
            return cls(ray, needs, await asyncio.shield(making))
        except asyncio.CancelledError:
            try:
                await cls(ray, needs, await making).leave()
            except Exception as lost:  # the caller waits for its cancellation, whatever failed
                _log.warning("a cancelled job's group was not made: %s", last_line(lost))
            raise
        except ray.exceptions.RayError as lost:
            raise NotStartedError(f"the cluster gave no group: {last_line(lost)}") from lost

    def options(self) -> dict[str, Any]:
        """Give the options of an actor that takes the room."""
        asked = {"num_cpus": self._needs["CPU"], "num_gpus": self._needs.get("GPU", 0)}
        if self._group is None:
            return asked
        strategies = self._ray.util.scheduling_strategies
        inside = strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=0
        )
        return {**asked, "scheduling_strategy": inside}

    async def leave(self) -> None:
        """Give the group back; Ray kills what is left in it."""
        if self._group is None:
            return
        try:
            await asyncio.to_thread(self._ray.util.remove_placement_group, self._group)
        except self._ray.exceptions.RayError as lost:  # the head is gone, and the group with it
            _log.warning("a job's placement group was not given back: %s", last_line(lost))


def last_line(lost: Exception) -> str:
    """Give the sentence of an error that may hold the whole stack of another machine."""
    return str(lost).strip().rpartition("\n")[2][:500]
