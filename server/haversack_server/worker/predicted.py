"""The peaks of ranks as they are predicted: by Estimate where it can, else by a run on no ranks.

What is predicted is compared with nothing here, and decides nothing.
"""

from collections.abc import Sequence

from haversack.basis import Basis
from haversack.errors import HaversackError, NotSupportedError
from haversack.torch import Workload
from haversack.verify import VerifyRequest, VerifyWorld
from haversack_server.verify import records
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.rank_predictions import Predicted
from haversack_server.worker import described, fake_ranks
from haversack_server.worker.probes import OF_PLAIN
from haversack_server.worker.ranks import RankLostError, run_ranks
from haversack_server.worker.run import RunPlan

_PATIENCE_S = 30.0


def predict(
    workloads: Sequence[Workload],
    request: VerifyRequest,
    world: VerifyWorld,
    wrapped: tuple[str, ...],
) -> Predicted:
    """Predict the peaks of all ranks, of a plain step and of a checkpointed one."""
    try:
        return described.predict(workloads[0], request, world)
    except HaversackError as refused:
        reason = str(refused).rstrip(".")
    if request.device.startswith("cuda"):
        return Predicted(method=f"Nothing is predicted: {reason}; a run on no ranks is of the CPU")
    try:
        plain, checkpointed = (
            _peaks_bytes(workloads, request, world, wrapped, is_checkpointed)
            for is_checkpointed in (False, True)
        )
    except NotSupportedError as raised:
        return Predicted(method=f"Nothing is predicted: {reason}; a run on no ranks {raised}")
    return Predicted(
        plain_bytes=plain,
        checkpointed_bytes=checkpointed,
        basis=Basis.SIMULATED,
        method="the same step on a process group that is not there, whose collectives move "
        f"nothing, under PyTorch's memory tracker, since {reason}",
    )


def _peaks_bytes(
    workloads: Sequence[Workload],
    request: VerifyRequest,
    world: VerifyWorld,
    wrapped: tuple[str, ...],
    is_checkpointed: bool,
) -> list[int]:
    """Run every rank's step by itself. Raises NotSupportedError for what came of it instead."""
    plan = RunPlan(
        stage="predicted",
        values_file="",
        checkpointed=is_checkpointed,
        probes=OF_PLAIN,
        decides=False,
        wrapped=wrapped,
    )

    def run(rank: int) -> Outcome:
        return fake_ranks.run_fake_rank(plan, rank, workloads[rank], request, world)

    try:
        frames = run_ranks(
            world.size, lambda rank: records.to_json(run(rank)), patience_s=_PATIENCE_S
        )
    except RankLostError as lost:
        raise NotSupportedError(f"was lost: {lost}") from lost
    outcomes = [records.from_json(Outcome, frames[rank]) for rank in range(world.size)]
    return [_peak_bytes(each) for each in outcomes]


def _peak_bytes(outcome: Outcome) -> int:
    if outcome.raised is not None:
        raise NotSupportedError(f"raises, in {outcome.raised.part}: {outcome.raised}")
    assert outcome.peak_bytes is not None
    return outcome.peak_bytes
