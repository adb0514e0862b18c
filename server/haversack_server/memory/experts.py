"""A feed-forward part that is routed to experts, as tape operations (grouped products).

Sorted by expert, ``rows * experts_per_token`` rows go through one grouped product each way, so the
same bytes are kept however the routing falls. As in Hugging Face transformers' default for a device
that has grouped products; measured (torch 2.13.0 CPU, transformers 5.24, Mixtral). The loop over
experts that runs elsewhere keeps the same rows. Experts are split by tensor parallelism along their
feed-forward size; expert parallelism is not modelled.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.tape_builder import TapeBuilder


def experts(tape: TapeBuilder, model: Architecture, source: str, *, rows: int, ffn: int) -> str:
    """Append router, experts and their weighted sum for ``rows`` tokens."""
    sent = rows * model.experts_per_token
    with tape.frame() as frame:
        scores = _router(tape, model, source, rows, frame)
        order, offsets = _sort(tape, model.experts, sent, frame)
        size = sent * model.hidden * tape.itemsize
        chosen = _gather(tape, "chosen tokens", source, size, order, sent * parts.INDEX_BYTES)
        weights = _gather(tape, "weights", scores, sent * parts.FLOAT_BYTES, order)
        joined = tape.linear("gate and up", chosen, sent, model.hidden, 2 * ffn)
        tape.keep(offsets)
        gate, up = tape.split("halves", joined, ("gate", "up"))
        active = parts.activation(tape, model.activation, gate)
        product = tape.apply("gate times up", [active, up], tape.size(up), [active, up])
        down = tape.linear("down", product, sent, ffn, model.hidden)
        frame += [scores, chosen, weights, down]
        return _weighted_sum(tape, model, down, weights, order, rows)


def _router(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    """Scores of the chosen experts, in fp32, normalised over the chosen."""
    logits = tape.linear("router", source, rows, model.hidden, model.experts)
    wide = parts.cast(tape, logits, rows * model.experts * parts.FLOAT_BYTES)
    chances = tape.apply("router softmax", [wide], tape.size(wide), saves_result=True)
    size = rows * model.experts_per_token
    top = tape.storage("top scores", size * parts.FLOAT_BYTES)
    index = tape.storage("top experts", size * parts.INDEX_BYTES, 0)
    # Backward scatters into zeros of the softmax's size.
    zeros = tape.size(chances)
    tape.add("top", [chances], [top, index], [index], backward_scratch_bytes=zeros)
    total = tape.apply("sum of scores", [top], rows * parts.FLOAT_BYTES)
    # d(a / b) = -a / b^2: quotients and their product are made before the sum over experts.
    scratch, kept = 3 * tape.size(top), [top, total]
    scores = tape.apply(
        "normalised scores", kept, tape.size(top), kept, backward_scratch_bytes=scratch
    )
    frame += [logits, index, scores]
    return scores


def _sort(tape: TapeBuilder, experts: int, sent: int, frame: list[str]) -> tuple[str, str]:
    """Sort the chosen experts; return the order, and where each expert's rows begin.

    The sorted numbers and their copy in fp32, which are counted, are held by the frame.
    """
    numbers, order, copy = (
        tape.storage(name, sent * width, 0)
        for name, width in (
            ("sorted experts", parts.INDEX_BYTES),
            ("order", parts.INDEX_BYTES),
            ("sorted experts in fp32", parts.FLOAT_BYTES),
        )
    )
    counts, offsets = (
        tape.storage(name, experts * parts.FLOAT_BYTES, 0) for name in ("counts", "offsets")
    )
    tape.add("sort", [], [numbers, order])
    tape.add("count", [numbers], [copy, counts, offsets])
    frame += [numbers, order, copy, counts, offsets]
    return order, offsets


def _gather(
    tape: TapeBuilder, name: str, source: str, size_bytes: int, index: str, index_bytes: int = 0
) -> str:
    """Take rows by an index that is kept; backward puts them into zeros of the source's size.

    With ``index_bytes`` the index is made here, from ``index``.
    """
    result = tape.storage(name, size_bytes)
    made = tape.storage(f"index of {name}", index_bytes, 0) if index_bytes else index
    if index_bytes:
        tape.add(f"index of {name}", [index], [made], forward_scratch_bytes=index_bytes)
    zeros = tape.size(source)
    tape.add(name, [source, made], [result], [made], backward_scratch_bytes=zeros)
    return result


def _weighted_sum(
    tape: TapeBuilder, model: Architecture, down: str, weights: str, order: str, rows: int
) -> str:
    """Weigh every row in fp32, put the rows back in order, sum those of each token."""
    sent = rows * model.experts_per_token
    wide = sent * model.hidden * parts.FLOAT_BYTES
    # Both products of the gradient are in fp32; the one for the rows is cast where they are not.
    scratch = wide * (2 if tape.itemsize < parts.FLOAT_BYTES else 1)
    weighted = tape.apply(
        "weighted", [down, weights], wide, [down, weights], backward_scratch_bytes=scratch
    )
    with tape.frame() as frame:
        restored = _gather(tape, "rows in order", weighted, wide, order, sent * parts.INDEX_BYTES)
        frame.append(restored)
        total = tape.apply("sum over experts", [restored], rows * model.hidden * parts.FLOAT_BYTES)
        return parts.cast(tape, total, rows * model.hidden * tape.itemsize)
