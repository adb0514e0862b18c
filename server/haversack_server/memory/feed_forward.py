"""The feed-forward part of a layer as tape operations: plain or gated; experts have a file.

Sizes are those of one rank: the feed-forward size is split by tensor parallelism.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.experts import experts
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.tape_builder import TapeBuilder


def feed_forward(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    source: str,
    *,
    rows: int,
    ffn: int,
    kept: str = "",
    held: list[str] | None = None,
) -> str:
    """Append the feed-forward part for ``rows`` tokens; ``kept`` as for attention.

    ``held`` takes the active part of a plain one, which the caller's variables name.
    """
    with tape.frame() as frame:
        frame.append(source)
        if model.experts:
            return experts(tape, model, profile, source, rows=rows, ffn=ffn)
        if model.gated:
            return _gated(tape, model, profile, source, rows, ffn, kept)
        inner = tape.linear("feed-forward in", source, rows, model.hidden, ffn, saved=kept)
        frame.append(inner)
        active = parts.activation(tape, model.activation, inner)
        active = parts.dropout(tape, profile, model.ffn_dropout, active)
        if held is not None:
            held.append(active)
    return tape.linear("feed-forward out", active, rows, ffn, model.hidden)


def _gated(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    source: str,
    rows: int,
    ffn: int,
    kept: str,
) -> str:
    if model.fused_gate:
        joined = tape.linear("gate and up", source, rows, model.hidden, 2 * ffn, saved=kept)
        gate, up = tape.split("halves", joined, ("gate", "up"))
        product = _product(tape, model, gate, up)
        return tape.linear("down", product, rows, ffn, model.hidden)
    gate = tape.linear("gate", source, rows, model.hidden, ffn, saved=kept)
    if profile.gated_activation_fused:
        up = tape.linear("up", source, rows, model.hidden, ffn, saved=kept)
        product = tape.apply("gated activation", [gate, up], tape.size(up), [gate, up])
        return tape.linear("down", product, rows, ffn, model.hidden)
    active = parts.activation(tape, model.activation, gate)
    up = tape.linear("up", source, rows, model.hidden, ffn, saved=kept)
    product = tape.apply("gate times up", [active, up], tape.size(up), [active, up])
    product = parts.dropout(tape, profile, model.ffn_dropout, product)
    return tape.linear("down", product, rows, ffn, model.hidden)


def _product(tape: TapeBuilder, model: Architecture, gate: str, up: str) -> str:
    """The activation of one half of a product times the other half, both views of it."""
    active = parts.activation(tape, model.activation, gate)
    return tape.apply("gate times up", [active, up], tape.size(up), [active, up])
