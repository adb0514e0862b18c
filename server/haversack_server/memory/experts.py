"""A feed-forward part that is routed to experts, as tape operations (grouped products).

Sorted by expert, ``rows * experts_per_token`` rows go through one grouped product each way, so the
same bytes are kept however the routing falls. As in Hugging Face transformers' default for a device
that has grouped products; measured (torch 2.13.0 CPU, transformers 5.24). The loop over experts,
which runs elsewhere, keeps the same rows. Experts are split by tensor parallelism along their
feed-forward size; rows that travel to experts on other ranks are in ``experts_parallel``, and
Megatron-LM's way in ``experts_weighed``.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.experts_parallel import Dispatch, arrive, return_home
from haversack_server.memory.experts_weighed import weighed_inside
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.regions import EXPERT_ACTIVATION
from haversack_server.memory.routers import gather, route
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Router


def experts(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    source: str,
    *,
    rows: int,
    ffn: int,
    dispatched: Dispatch | None = None,
) -> str:
    """Append router, experts and their weighted sum for ``rows`` tokens, and what all tokens visit.

    ``dispatched`` says how many rows arrive at this rank's experts, where rows travel.
    """
    if profile.experts_weighed_inside:
        return weighed_inside(tape, model, source, rows=rows, ffn=ffn, dispatched=dispatched)
    if model.routing.router is Router.DENSE:
        return _all_experts(tape, model, source, rows, ffn)
    shared = ""
    with tape.frame() as outer:
        if model.routing.shared_gate:
            shared = _shared(tape, model, source, rows)
            outer.append(shared)
        chosen = _chosen(tape, model, source, rows, ffn, dispatched, outer)
        if not model.routing.shared_ffn:
            return chosen
        outer.append(chosen)
        if model.routing.shared_gate:
            shared = _gated(tape, model, source, shared, rows)
        else:
            shared = _shared(tape, model, source, rows)
        return tape.passing("chosen and shared", [chosen, shared], tape.size(chosen))


def _chosen(
    tape: TapeBuilder,
    model: Architecture,
    source: str,
    rows: int,
    ffn: int,
    dispatched: Dispatch | None,
    outer: list[str],
) -> str:
    """Sort rows by expert, run them, weigh and add them up; ``outer`` names the router's
    results."""
    sent = rows * model.experts_per_token
    arriving = dispatched.arriving if dispatched else sent
    with tape.frame() as frame:
        scores = route(tape, model, source, rows, outer)
        numbers, order, offsets = _sort(tape, model.experts, sent, frame)
        size = sent * model.hidden * tape.itemsize
        chosen = gather(tape, "chosen tokens", source, size, order, sent * parts.INDEX_BYTES)
        weights = gather(tape, "weights", scores, tape.size(scores), order)
        if dispatched:
            chosen, numbers = arrive(tape, model, dispatched, chosen)
        joined = tape.linear("expert gate and up", chosen, arriving, model.hidden, 2 * ffn)
        tape.keep(offsets)
        joined = _biased(tape, model, joined, numbers, 2 * ffn, frame)
        with tape.scoped(EXPERT_ACTIVATION):
            product = _activated(tape, model, joined)
        down = tape.linear("expert down", product, arriving, ffn, model.hidden)
        down = _biased(tape, model, down, numbers, model.hidden, frame)
        if dispatched:
            down = return_home(tape, model, dispatched, down)
        frame += [scores, chosen, weights, down]
        return _weighted_sum(tape, model, down, weights, order, rows)


def _biased(
    tape: TapeBuilder, model: Architecture, source: str, numbers: str, width: int, frame: list[str]
) -> str:
    """Add each row's expert's bias in place; gathered by numbers that are kept, alive to the
    end."""
    if model.routing.router is not Router.CHOSEN:
        return source
    sent = tape.size(numbers) // parts.INDEX_BYTES
    biases = tape.storage("biases", sent * width * tape.itemsize, 0)
    tape.add("biases", [numbers], [biases], [numbers])
    frame.append(biases)
    return tape.view("biased", source, tape.size(source), copies_gradient=False)


def _activated(tape: TapeBuilder, model: Architecture, joined: str) -> str:
    """The activation of one half times the other half."""
    gate, up = tape.split("halves", joined, ("gate", "up"))
    if model.routing.router is Router.CHOSEN:
        return _clamped(tape, joined, gate, up)
    active = parts.activation(tape, model.activation, gate)
    return tape.apply("gate times up", [active, up], tape.size(up), [active, up])


def _clamped(tape: TapeBuilder, joined: str, gate: str, up: str) -> str:
    """GPT-OSS's ``(up + 1) * gate * sigmoid(alpha * gate)``, of halves that are clamped."""
    size = tape.size(up)
    with tape.frame() as frame:
        frame.append(joined)
        gate = tape.apply("clamped gate", [gate], size, [gate])
        up = tape.apply("clamped up", [up], size, [up])
        scaled = tape.apply("alpha gate", [gate], size)
        bounded = tape.apply("sigmoid", [scaled], size, saves_result=True)
        both = [gate, bounded]
        linear = tape.apply("gated linear unit", both, size, both)
        plus = tape.passing("up + 1", [up], size)
        frame += [gate, up, linear]
        both = [plus, linear]
        return tape.apply("gate times up", both, size, both)


def _shared(tape: TapeBuilder, model: Architecture, source: str, rows: int) -> str:
    """The expert that every token visits: a gated feed-forward part."""
    size = model.routing.shared_ffn
    gate = tape.linear("gate", source, rows, model.hidden, size)
    active = parts.activation(tape, model.activation, gate)
    up = tape.linear("up", source, rows, model.hidden, size)
    product = tape.apply("gate times up", [active, up], tape.size(up), [active, up])
    return tape.linear("down", product, rows, size, model.hidden)


def _gated(tape: TapeBuilder, model: Architecture, source: str, shared: str, rows: int) -> str:
    """The shared expert's result times a sigmoid for each token."""
    gate = tape.linear("shared gate", source, rows, model.hidden, 1)
    gate = tape.apply("sigmoid", [gate], tape.size(gate), saves_result=True)
    both = [gate, shared]
    scratch = tape.size(shared)
    return tape.apply("gated shared", both, scratch, both, backward_scratch_bytes=scratch)


def _all_experts(tape: TapeBuilder, model: Architecture, source: str, rows: int, ffn: int) -> str:
    """Llama 4: every expert runs every token, scaled by a score that is 0 where it was not
    chosen."""
    sent, size = rows * model.experts, rows * model.experts * model.hidden * tape.itemsize
    with tape.frame() as frame:
        scores = route(tape, model, source, rows, frame)
        repeated = tape.apply("tokens for all", [source], size)
        column = tape.apply("scores in a column", [scores], tape.size(scores))
        both = [repeated, column]
        scaled = tape.apply("scaled tokens", both, size, both, backward_scratch_bytes=size)
        frame += [scores, scaled]
        joined = tape.linear("expert gate and up", scaled, sent, model.hidden, 2 * ffn)
        gate, up = tape.split("halves", joined, ("gate", "up"))
        active = parts.activation(tape, model.activation, gate)
        product = tape.apply("gate times up", [active, up], tape.size(up), [active, up])
        down = tape.linear("expert down", product, sent, ffn, model.hidden)
        frame.append(down)
        shared = _shared(tape, model, source, rows)
        total = tape.apply("sum over experts", [down], tape.size(shared))
        frame.append(total)
        return tape.passing("shared and chosen", [shared, total], tape.size(shared))


def _sort(tape: TapeBuilder, experts: int, sent: int, frame: list[str]) -> tuple[str, str, str]:
    """Sort the chosen experts; return their numbers, the order, and where each one's rows begin.

    The copy of the numbers in fp32, which is counted, is held by the frame as they are.
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
    return numbers, order, offsets


def _weighted_sum(
    tape: TapeBuilder, model: Architecture, down: str, weights: str, order: str, rows: int
) -> str:
    """Weigh every row, put the rows back in order, sum those of each token.

    In fp32 where the weights are, whose two gradients are then in fp32 too.
    """
    sent = rows * model.experts_per_token
    itemsize = tape.size(weights) // sent
    wide = sent * model.hidden * itemsize
    # The product's gradient for the rows is cast where they are narrower.
    scratch = wide * (2 if tape.itemsize < itemsize else 1)
    weighted = tape.apply(
        "weighted", [down, weights], wide, [down, weights], backward_scratch_bytes=scratch
    )
    with tape.frame() as frame:
        restored = gather(tape, "rows in order", weighted, wide, order, sent * parts.INDEX_BYTES)
        frame.append(restored)
        total = tape.apply("sum over experts", [restored], rows * model.hidden * itemsize)
        return parts.cast(tape, total, rows * model.hidden * tape.itemsize)
