"""The feed-forward part of a layer as tape operations: plain or gated; experts have a file.

Sizes are those of one rank: the feed-forward size is split by tensor parallelism.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.experts import experts
from haversack_server.memory.tape_builder import TapeBuilder


def feed_forward(
    tape: TapeBuilder,
    model: Architecture,
    source: str,
    *,
    rows: int,
    ffn: int,
    kept: str = "",
) -> str:
    """Append the feed-forward part for ``rows`` tokens; ``kept`` as for attention."""
    with tape.frame() as frame:
        frame.append(source)
        if model.experts:
            return experts(tape, model, source, rows=rows, ffn=ffn)
        if model.gated:
            return _gated(tape, model, source, rows, ffn, kept)
        inner = tape.linear("feed-forward in", source, rows, model.hidden, ffn, saved=kept)
        frame.append(inner)
        active = parts.activation(tape, model.activation, inner)
    return tape.linear("feed-forward out", active, rows, ffn, model.hidden)


def _gated(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, ffn: int, kept: str
) -> str:
    gate = tape.linear("gate", source, rows, model.hidden, ffn, saved=kept)
    active = parts.activation(tape, model.activation, gate)
    up = tape.linear("up", source, rows, model.hidden, ffn, saved=kept)
    product = tape.apply("gate times up", [active, up], tape.size(up), [active, up])
    return tape.linear("down", product, rows, ffn, model.hidden)
