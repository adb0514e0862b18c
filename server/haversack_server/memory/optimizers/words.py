"""An optimizer's moments in words: the formula that the ledger prints."""

from haversack_server.memory.optimizers.kinds import KINDS, Form
from haversack_server.memory.optimizers.state import BLOCK, SMALLEST_PAGED, SMALLEST_QUANTIZED
from haversack_server.memory.recipe import Recipe


def moments_formula(recipe: Recipe) -> str:
    """Say what is kept for each number of a tensor."""
    kind, each = KINDS[recipe.optimizer], recipe.moment
    since = "from the start" if kind.from_start else "from the first optimizer step on"
    if kind.form is Form.FACTORED:
        made = (
            f"(rows + columns) of every tensor with both x {each} bytes; a flat shard has neither"
        )
    elif kind.form is Form.MATRICES:
        made = f"{each} bytes for matrices of layers, {2 * each} for other parameters of the rank"
    elif kind.form is Form.BLOCKS:
        made = (
            f"parameters of the rank x {kind.moments} bytes, 4 more for every {BLOCK} of each "
            f"moment; fp32 in tensors below {SMALLEST_QUANTIZED:,} elements"
        )
    else:
        made = f"parameters of the rank x {kind.moments * each} bytes"
    paged = f"; from {SMALLEST_PAGED:,} elements on in managed memory" if kind.paged else ""
    return f"{made}{paged}, {since}"
