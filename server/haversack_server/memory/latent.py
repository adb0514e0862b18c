"""Multi-head latent attention as tape operations: queries and keys from compressed products.

As DeepSeek V2 and V3 train (measured, torch 2.13.0 CPU, transformers 5.24): keys and values are
expanded from the compression to all heads, so an attention core sees as many of them as queries.
The value is a view of the expansion, and what keeps it keeps the keys' part too. Compressions are
whole on every tensor-parallel rank; Megatron-LM's, which are not, have a file, ``latent_shards``.
"""

from collections.abc import Callable, Mapping

from haversack_server.memory import rotary
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.norms import norm
from haversack_server.memory.projections import Heads, Inputs, Projected
from haversack_server.memory.regions import LATENT_UP
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Latent, Rotary


def latent_projections(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Inputs
) -> Projected:
    """Append compressions, norms, expansions and positions; return queries, keys and values."""
    latent = model.latent
    if latent is None:
        raise ValueError(f"{model.family} has no latent attention")
    query = _query(tape, model, profile, heads, latent, given)
    both = latent.key_value_rank + latent.rotary
    compressed = tape.linear(
        "key and value, compressed", given.source, heads.rows, model.hidden, both, saved=given.kept
    )
    each = heads.rows * tape.itemsize
    sizes = (latent.key_value_rank * each, latent.rotary * each)
    plain, turning = tape.split("split", compressed, ("plain", "turning"), sizes)
    normed = norm(tape, model.norm, profile, plain, heads.rows, latent.key_value_rank)
    whole = query
    with tape.scoped(LATENT_UP):
        query, turned, part = _turned(tape, model, heads, latent, whole, turning)
    with tape.frame() as frame:
        frame += [query, compressed, normed, turned]
        with tape.scoped(LATENT_UP):
            key, value = _expanded(tape, heads, latent, normed, turned)
        held = (compressed, normed, turned, part, whole)
        return Projected(query, key, value, by_heads=True, held=held)


def _query(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    heads: Heads,
    latent: Latent,
    given: Inputs,
) -> str:
    width, rank = heads.heads * (latent.plain + latent.rotary), latent.query_rank
    rows, hidden = heads.rows, model.hidden
    if rank is None:
        return tape.linear("query", given.source, rows, hidden, width, saved=given.kept)
    low = tape.linear("query, compressed", given.source, rows, hidden, rank, saved=given.kept)
    low = norm(tape, model.norm, profile, low, rows, rank)
    with tape.scoped(LATENT_UP):
        return tape.linear("query", low, rows, rank, width)


def _turned(
    tape: TapeBuilder,
    model: Architecture,
    heads: Heads,
    latent: Latent,
    query: str,
    turning: str,
) -> tuple[str, str, str]:
    """Turn the rotary part of every query head, and the one rotary part of all keys."""
    each = heads.rows * heads.heads * tape.itemsize
    sizes = (latent.plain * each, latent.rotary * each)
    plain, part = tape.split("query parts", query, ("plain", "turning"), sizes)
    with tape.frame() as frame:
        frame += [query, turning]
        turned, key = _TURNS[model.rotary](tape, (part, turning))
        frame += [turned, key]
        return tape.apply("query joined", [plain, turned], tape.size(query)), key, turned


def _halves(tape: TapeBuilder, pair: tuple[str, str]) -> tuple[str, str]:
    query, key = (rotary.halves(tape, source) for source in pair)
    return query, key


_TURNS: Mapping[Rotary, Callable[[TapeBuilder, tuple[str, str]], tuple[str, str]]] = {
    Rotary.COMPLEX: rotary.in_float,
    Rotary.STRIDED: rotary.strided,
    Rotary.HALVES: _halves,
}


def _expanded(
    tape: TapeBuilder, heads: Heads, latent: Latent, normed: str, turned: str
) -> tuple[str, str]:
    """Expand keys and values to all heads; keys are copied together with their rotary part."""
    each, per_head = heads.rows * heads.heads * tape.itemsize, latent.plain + latent.value
    width = heads.heads * per_head
    joined = tape.linear("key and value", normed, heads.rows, latent.key_value_rank, width)
    sizes = (latent.plain * each, latent.value * each)
    plain, value = tape.split("key and value parts", joined, ("plain", "value"), sizes)
    key_bytes = (latent.plain + latent.rotary) * each
    key = tape.storage("key", key_bytes)
    # Copied in place, in two steps: backward clones the gradient for each.
    tape.add("key joined", [plain, turned], [key], backward_scratch_bytes=2 * key_bytes)
    return key, value
