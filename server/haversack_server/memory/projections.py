"""Queries, keys and values as tape operations: from a layer's normalised input to the attention
core.

Separate products, or parts of one: a part is a view, so what keeps it keeps all of the product.
Measured (torch 2.13.0 CPU, transformers 5.24). Sizes are those of one rank.
"""

from dataclasses import dataclass
from enum import StrEnum

from haversack.parallelism import ContextParallel
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.norms import norm, weightless
from haversack_server.memory.parts import INDEX_BYTES
from haversack_server.memory.rotary import rotary
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Projection, QueryKeyNorm, Rotary


class AttentionKind(StrEnum):
    """The attention kernel that really runs."""

    FLASH = "flash"
    EAGER = "eager"
    SDPA = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The attention of one rank: sequences, their length, and this rank's heads.

    ``key_seq`` is the length of what is attended to, 0 where it is the same; ``value_dim`` is the
    size of a value head, 0 where it is the same. ``seq`` is a rank's share under ``cp``.
    """

    microbatch: int
    seq: int
    heads: int
    kv_heads: int
    head_dim: int
    kind: AttentionKind
    key_seq: int = 0
    value_dim: int = 0
    cp: int = 1
    context_parallel: ContextParallel = ContextParallel.RING

    @property
    def scores(self) -> int:
        """Count the attention scores."""
        return self.microbatch * self.heads * self.seq * (self.key_seq or self.seq)

    @property
    def rows(self) -> int:
        """Count the tokens."""
        return self.microbatch * self.seq

    @property
    def key_rows(self) -> int:
        """Count the tokens that are attended to."""
        return self.microbatch * (self.key_seq or self.seq)

    @property
    def width(self) -> int:
        """Count the elements of one token's result, all heads."""
        return self.heads * (self.value_dim or self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is projected: ``source`` for queries, ``memory`` for keys and values.

    ``kept`` is what products save in place of their input, if that is something else.
    """

    source: str
    memory: str
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Projected:
    """Queries, keys and values, turned and per head.

    ``by_heads``: the query is laid out head by head, not token by token. ``held`` are named by
    Python variables until attention is done.
    """

    query: str
    key: str
    value: str
    by_heads: bool = False
    held: tuple[str, ...] = ()


def project(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Inputs
) -> Projected:
    """Append the products and what follows them; return queries, keys and values."""
    if profile.joins_projections:
        return _joined_for_all(tape, model, profile, heads, given)
    if model.projection is not Projection.SEPARATE:
        return _joined(tape, model, heads, given)
    queries, keys = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
    hidden = model.hidden
    query = tape.linear("query", given.source, heads.rows, hidden, queries, saved=given.kept)
    if model.scaled_query:
        query = tape.apply("scaled query", [query], tape.size(query))
    query = _per_head(tape, model, profile, query, heads.rows, heads.heads)
    key = tape.linear("key", given.memory, heads.key_rows, hidden, keys, saved=given.kept)
    key = _per_head(tape, model, profile, key, heads.key_rows, heads.kv_heads)
    value = tape.linear("value", given.memory, heads.key_rows, hidden, keys, saved=given.kept)
    # The fused kernels return the value's gradient in its own layout; eager's is transposed.
    eager = heads.kind is AttentionKind.EAGER
    value = tape.view("value heads", value, tape.size(value), copies_gradient=eager)
    with tape.frame() as frame:
        frame += [query, key]
        held: list[str] = []
        query, key = rotary(tape, model, (query, key), heads.seq, held)
        if model.query_key_norm is QueryKeyNorm.PLAIN:
            query, key = (_plain_norm(tape, model, name) for name in (query, key))
        by_heads = joins_by_heads(model)
        return Projected(query, key, value, by_heads=by_heads, held=tuple(held))


def joins_by_heads(model: Architecture) -> bool:
    """Whether positions leave the queries head by head, as a concatenation of views does."""
    return model.rotary is Rotary.HALVES_AND_REST


def _plain_norm(tape: TapeBuilder, model: Architecture, source: str) -> str:
    """``(x32 * rsqrt(mean(x32 ** 2) + eps)).to(dtype)``, without a weight."""
    rows = tape.size(source) // tape.itemsize // model.head_dim
    return weightless(tape, source, rows, model.head_dim)


def _per_head(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    source: str,
    rows: int,
    count: int,
) -> str:
    """View a projection per head, normalised per head or as a whole where the family does so."""
    kind, size = model.query_key_norm, model.head_dim
    if kind is QueryKeyNorm.WIDTH:
        source = norm(tape, model.norm, profile, source, rows, count * size)
    elif kind in (QueryKeyNorm.HEAD, QueryKeyNorm.HEADS):
        weight = size if kind is QueryKeyNorm.HEAD else size * count
        source = norm(tape, model.norm, profile, source, rows * count, size, weight)
    return tape.view("heads", source, tape.size(source), copies_gradient=True)


def _joined(tape: TapeBuilder, model: Architecture, heads: Heads, given: Inputs) -> Projected:
    """One product whose parts are views, and whose parts' gradients are joined again."""
    queries, keys = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
    total = queries + 2 * keys
    joined = tape.linear(
        "query, key, value", given.source, heads.rows, model.hidden, total, saved=given.kept
    )
    each = tape.size(joined) // total
    sizes = (queries * each, keys * each, keys * each)
    query, key, value = tape.split("split", joined, ("query", "key", "value"), sizes)
    if model.projection is Projection.THIRDS:
        return Projected(query, key, value)
    if model.alibi:
        # Laid out for products over all heads of all sequences, in copies if there are several.
        if heads.microbatch > 1:
            query, key, value = (
                tape.passing("copy", [name], tape.size(name)) for name in (query, key, value)
            )
        return Projected(query, key, value, held=(joined,))
    with tape.frame() as frame:
        frame.append(joined)
        key, value = _per_group(tape, model, heads, key, value)
        held = [joined]
        query, key = rotary(tape, model, (query, key), heads.seq, held)
        by_heads = joins_by_heads(model)
        return Projected(query, key, value, by_heads=by_heads, held=tuple(held))


def _joined_for_all(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Inputs
) -> Projected:
    """One product that the framework makes of every family's; groups are copied to all heads.

    Where each query head has a key head, the parts are views (litgpt/model.py).
    """
    names, count = ("query", "key", "value"), heads.kv_heads * heads.head_dim
    outputs = dict(zip(names, (heads.heads * heads.head_dim, count, count), strict=True))
    rows, total = heads.rows, sum(outputs.values())
    joined = tape.linear(
        "query, key, value",
        given.source,
        rows,
        model.hidden,
        total,
        saved=given.kept,
        parts=outputs,
    )
    each = tape.size(joined) // total
    shown = tape.split("split", joined, names, [part * each for part in outputs.values()])
    copies = heads.heads // heads.kv_heads
    if copies > 1:
        size = outputs["query"] * each
        shown = tuple(tape.apply("copied to heads", [part], size) for part in shown)
    query, key, value = shown
    with tape.frame() as frame:
        frame.append(joined)
        query, key = (
            _per_head(tape, model, profile, part, rows, heads.heads) for part in (query, key)
        )
        held = [joined]
        query, key = rotary(tape, model, (query, key), heads.seq, held)
        return Projected(query, key, value, by_heads=joins_by_heads(model), held=tuple(held))


def _per_group(
    tape: TapeBuilder, model: Architecture, heads: Heads, key: str, value: str
) -> tuple[str, str]:
    """Copy keys and values out of the product, where the family does so."""
    if model.projection is Projection.INDEXED:
        index = tape.storage("indices", 2 * INDEX_BYTES, 0)
        tape.add("indices", [], [index])
        made = [
            tape.apply("taken by index", [name], tape.size(name), [index]) for name in (key, value)
        ]
        return made[0], made[1]
    if model.projection is Projection.GROUPS:
        index = tape.storage("indices", 2 * INDEX_BYTES, 0)
        tape.add("indices", [], [index])
        copies = heads.heads // heads.kv_heads
        made = [
            tape.apply("copied to heads", [name], tape.size(name) * copies, [index])
            for name in (key, value)
        ]
        return made[0], made[1]
    return key, value
