"""Where a solve stops being exact, and how much of a frontier is answered unasked."""

from haversack.plan import PlanRequest

STATE_LIMIT = 4_000_000  # states of a list, 24 bytes each: about 100 MB for one solve
FRONTIER_POINTS = 8


def assumed(request: PlanRequest) -> tuple[str, ...]:
    """Say how far an exact solve goes where the request does not."""
    if request.state_limit is not None:
        return ()
    return (f"state limit: {STATE_LIMIT:,} states, past which a plan is feasible with its gap",)
