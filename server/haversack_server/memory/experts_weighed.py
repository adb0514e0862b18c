"""Experts whose scores multiply the active part, before the second product, as in Megatron-LM.

The experts' results are then summed as they are and nobody keeps them (TEGroupedMLP and
SequentialMLP of megatron/core/transformer/moe/experts.py; before core 0.12 results were weighed).
Rows are permuted by a map of tokens and experts (transformer_engine/pytorch/permutation.py). Knows
nothing of how many rows arrive, which ``experts_parallel`` counts.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.experts_parallel import Dispatch, arrive, return_home
from haversack_server.memory.regions import EXPERT_ACTIVATION
from haversack_server.memory.routers import gather
from haversack_server.memory.tape_builder import TapeBuilder

_ROW_BYTES = 4  # row numbers of the permutation are int32


def weighed_inside(
    tape: TapeBuilder,
    model: Architecture,
    source: str,
    *,
    rows: int,
    ffn: int,
    dispatched: Dispatch | None,
) -> str:
    """Append router and experts of ``rows`` tokens, and the expert that all of them visit."""
    with tape.frame() as frame:
        frame.append(source)
        shared = _shared(tape, model, source, rows) if model.routing.shared_ffn else ""
        frame += [shared] if shared else []
        scores = _scores(tape, model, source, rows)
        frame.append(scores)
        chosen = _chosen(tape, model, source, scores, rows, ffn, dispatched)
        if not shared:
            return chosen
        return tape.passing("chosen and shared", [chosen, shared], tape.size(chosen))


def _scores(tape: TapeBuilder, model: Architecture, source: str, rows: int) -> str:
    """Scores in fp32 of every token and expert, and a map of those that were chosen."""
    count = rows * model.experts
    logits = tape.linear("router", source, rows, model.hidden, model.experts)
    size = count * parts.FLOAT_BYTES
    all_scores = tape.apply("router scores", [logits], size, saves_result=True)
    chosen = tape.storage("map of the chosen", count, 0)
    tape.add("map of the chosen", [], [chosen])
    return tape.apply("scores of the chosen", [all_scores], size, [chosen])


def _chosen(
    tape: TapeBuilder,
    model: Architecture,
    source: str,
    scores: str,
    rows: int,
    ffn: int,
    dispatched: Dispatch | None,
) -> str:
    """The way of the rows to their experts, through them, and back to one sum for each token."""
    sent = rows * model.experts_per_token
    arriving = dispatched.arriving if dispatched else sent
    routing = _map(tape, model, rows)
    size = sent * model.hidden * tape.itemsize
    chosen = gather(tape, "chosen tokens", source, size, routing)
    if dispatched:
        chosen, _ = arrive(tape, model, dispatched, chosen)
    weights = tape.apply("scores of rows", [scores], arriving * parts.FLOAT_BYTES)
    first = ffn * (2 if model.gated else 1)
    joined = tape.linear("expert in", chosen, arriving, model.hidden, first)
    with tape.scoped(EXPERT_ACTIVATION):
        product = _weighed(tape, model, joined, weights, arriving * ffn * tape.itemsize)
    done = tape.linear("expert down", product, arriving, ffn, model.hidden)
    if dispatched:
        done = return_home(tape, model, dispatched, done)
    summed = tape.storage("sum over experts", rows * model.hidden * tape.itemsize)
    tape.add("sum over experts", [done], [summed], [routing])
    return summed


def _map(tape: TapeBuilder, model: Architecture, rows: int) -> str:
    """Which expert each token goes to, and the row that each of its copies becomes."""
    made = tape.storage("map of rows", rows * (2 * model.experts + 1) * _ROW_BYTES, 0)
    tape.add("map of rows", [], [made])
    return made


def _weighed(
    tape: TapeBuilder, model: Architecture, joined: str, weights: str, size_bytes: int
) -> str:
    """The active part times the scores: one kernel where it is gated, else two."""
    if model.gated:
        kept = [joined, weights]
        return tape.apply("weighed gated activation", kept, size_bytes, kept)
    active = parts.activation(tape, model.activation, joined)
    kept = [active, weights]
    return tape.apply("weighed activation", kept, size_bytes, kept)


def _shared(tape: TapeBuilder, model: Architecture, source: str, rows: int) -> str:
    """The expert of all tokens: of a rank's own tokens and whole, or of all tokens and a part."""
    ffn = model.routing.shared_ffn
    joined = tape.linear("shared in", source, rows, model.hidden, ffn * (2 if model.gated else 1))
    size = rows * ffn * tape.itemsize
    if model.gated:
        product = tape.apply("gated activation", [joined], size, [joined])
    else:
        product = parts.activation(tape, model.activation, joined)
    return tape.linear("shared down", product, rows, ffn, model.hidden)
