"""The state that runs leave, to be compared: without weights that other gradients have moved.

An optimizer that steps by another gradient leaves another weight: that the gradients differ is
said, and that a weight does says no more. What the steps themselves made of it is looked at apart.
"""

from haversack.verify import Facet
from haversack_server.verify.comparison import with_totals
from haversack_server.verify.outcome import Outcome


def states(*runs: Outcome) -> tuple[dict[str, str], ...]:
    """Give what each run leaves, with totals; first two plain ones, last the one in question.

    Where no gradient differs weights are what they are, so that an optimizer is seen that steps
    by something else.
    """
    if any(row.facet is Facet.PARAMETER_GRADIENTS for row in runs[-1].rows):
        return with_totals(*({**run.state, **run.own_changes} for run in runs))
    return with_totals(*(run.state for run in runs))
