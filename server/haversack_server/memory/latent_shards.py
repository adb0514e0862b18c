"""Multi-head latent attention as Megatron-LM runs it: compressions on each rank's own tokens.

Under sequence parallelism a rank compresses and normalises its share of the tokens, and the
products that expand the compressions gather their inputs. Values are copied out of the expansion,
which is then freed (megatron/core/transformer/multi_latent_attention.py). Knows nothing of the
attention core.
"""

from typing import NamedTuple

from haversack_server.memory import rotary
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.norms import norm
from haversack_server.memory.projections import Heads, Inputs, Projected
from haversack_server.memory.regions import LATENT_UP
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Latent, QueryKeyNorm


def latent_on_shards(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, heads: Heads, given: Inputs
) -> Projected:
    """Append compressions, expansions and positions; ``given.source`` is the rank's own tokens."""
    if model.latent is None:
        raise ValueError(f"{model.family} has no latent attention")
    made = _Expansion(tape, model, profile, heads, model.latent)
    rows = tape.size(given.source) // (model.hidden * tape.itemsize)
    low, turning, query = _compressed(made, given.source, rows)
    with tape.scoped(LATENT_UP):
        return _expanded(made, low, turning, query)


class _Expansion(NamedTuple):
    """What every part of the expansion is made with."""

    tape: TapeBuilder
    model: Architecture
    profile: KernelProfile
    heads: Heads
    latent: Latent


def _compressed(made: _Expansion, source: str, rows: int) -> tuple[str, str, str]:
    """Compress keys and values, and queries where they are; return parts and what queries are of.

    Positions of all tokens are gathered: every head turns by the same.
    """
    tape, latent, hidden = made.tape, made.latent, made.model.hidden
    query = source
    if latent.query_rank is not None:
        query = tape.linear("query, compressed", source, rows, hidden, latent.query_rank)
    both = latent.key_value_rank + latent.rotary
    joined = tape.linear("key and value, compressed", source, rows, hidden, both)
    each = rows * tape.itemsize
    sizes = (latent.key_value_rank * each, latent.rotary * each)
    low, turning = tape.split("split", joined, ("plain", "turning"), sizes)
    if rows < made.heads.rows:
        size = made.heads.rows * latent.rotary * tape.itemsize
        turning = tape.apply("gathered positions", [turning], size)
    return low, turning, query


def _expanded(made: _Expansion, low: str, turning: str, query: str) -> Projected:
    """Expand to all heads; queries and keys are copied together with their turned parts."""
    tape, latent, count = made.tape, made.latent, made.heads.heads
    each = made.heads.rows * count * tape.itemsize
    queries = count * (latent.plain + latent.rotary)
    values = count * (latent.plain + latent.value)
    query = _product(made, "query", query, latent.query_rank or 0, queries)
    joined = _product(made, "key and value", low, latent.key_value_rank, values)
    sizes = (latent.plain * each, latent.rotary * each)
    own, part = tape.split("query parts", query, ("plain", "turning"), sizes)
    sizes = (latent.plain * each, latent.value * each)
    plain, value = tape.split("key and value parts", joined, ("plain", "value"), sizes)
    with tape.frame() as frame:
        frame += [query, joined, turning]
        part, turned = (rotary.halves(tape, name) for name in (part, turning))
        whole = (latent.plain + latent.rotary) * each
        query = tape.apply("query joined", [own, part], whole)
        key = tape.apply("key joined", [plain, turned], whole)
        value = tape.passing("value copied", [value], tape.size(value))
        return Projected(query, key, value)


def _product(made: _Expansion, name: str, source: str, rank: int, outputs: int) -> str:
    """Normalise a compression, gather it and expand it; backward gathers again what is kept.

    A ``rank`` of 0 is the layer's own input, which has its norm behind it.
    """
    tape, model, inputs = made.tape, made.model, rank or made.model.hidden
    rows, kept = tape.size(source) // (inputs * tape.itemsize), ""
    if rank and model.query_key_norm is QueryKeyNorm.HEAD:
        source = norm(tape, model.norm, made.profile, source, rows, rank)
    if rows < made.heads.rows:
        kept = source
        source = tape.apply("gathered", [source], made.heads.rows * inputs * tape.itemsize)
    return tape.linear(name, source, made.heads.rows, inputs, outputs, saved=kept)
