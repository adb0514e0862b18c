"""The tensors that a step allocates at once, by size: what a failed allocation may have been.

Knows names, sizes and formulas; which of them failed is for ``oom``. A tensor that the run has only
under another setting says which.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haversack.units import MIB
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.model_run import ModelRun

FLOAT_BYTES = 4
_TYPES = {1: "bool", 2: "bf16", 4: "fp32"}
_BOTH = ("forward", "backward")
_LOSS = ("loss", "backward")
DDP_BUCKET_BYTES = 25 * MIB  # PyTorch's default bucket_cap_mb


@dataclass(frozen=True, slots=True)
class Tensor:
    """One allocation; ``implies`` is empty where the run as described makes it."""

    name: str
    bytes: int
    formula: str
    phases: tuple[str, ...]
    implies: str = ""


def tensors(run: ModelRun) -> Iterator[Tensor]:
    """Yield what a rank allocates at once, the likeliest first."""
    yield from _of_loss(run)
    yield from _of_units(run)
    yield from _of_layers(run)
    yield from _of_attention(run)
    yield from _of_states(run)
    yield from _of_parameters(run)


def _sized(
    name: str,
    factors: dict[str, int],
    width: int,
    phases: tuple[str, ...],
    implies: str = "",
) -> Tensor:
    """Make a tensor from named factors and the bytes of an element."""
    size = width
    for factor in factors.values():
        size *= factor
    written = " x ".join(f"{value:,} {what}" for what, value in factors.items())
    named = f"{name} in {_TYPES[width]}" if width in _TYPES else name
    return Tensor(named, size, f"{written} x {width} bytes", phases, implies)


def logit_columns(run: ModelRun) -> int:
    """Count the logits of a token on this rank."""
    vocab = run.architecture.vocab
    split = run.shape.splits_logits(run.profile) and run.degrees.tp > 1
    return -(-vocab // run.degrees.tp) if split else vocab


def _of_loss(run: ModelRun) -> Iterator[Tensor]:
    factors = {"tokens": run.shape.rows, "logits of a token": logit_columns(run)}
    yield _sized("logits", factors, FLOAT_BYTES, _LOSS)
    if run.shape.compute_bytes != FLOAT_BYTES:
        yield _sized("logits", factors, run.shape.compute_bytes, _LOSS)


def _of_units(run: ModelRun) -> Iterator[Tensor]:
    """Units as they are gathered, and as their gradients are reduced."""
    if not run.degrees.shards_parameters:
        return
    recipe = run.chain.recipe
    seen: set[int] = set()
    for block in run.chain.blocks:
        if block.unit.whole not in seen:
            seen.add(block.unit.whole)
            factors = {"parameters": block.unit.whole}
            yield _sized(f"gathered unit {block.name}", factors, recipe.compute, _BOTH)
            name = f"gradients of unit {block.name} before they are reduced"
            for width in sorted({recipe.compute, recipe.reduce}):
                yield _sized(name, factors, width, ("backward",))
    yield from _root_unit(run)


def _root_unit(run: ModelRun) -> Iterator[Tensor]:
    """Embedding and head, where the wrapping leaves them to the root: one unit of both."""
    first, last = run.chain.blocks[0], run.chain.blocks[-1]
    if first.root or last.root or run.degrees.pp > 1:  # one unit already, or on two stages
        return
    factors = {"parameters of embedding and head": first.unit.whole + last.unit.whole}
    implies = "embedding and head lie in one root unit; wrapped each as its own, it is halved"
    name = "root unit of embedding and head, gathered or reduced"
    for width in (2, FLOAT_BYTES):
        yield _sized(name, factors, width, _BOTH, implies)


def _of_layers(run: ModelRun) -> Iterator[Tensor]:
    model, shape = run.architecture, run.shape
    stream = {"tokens": shape.stream_rows, "hidden": model.hidden}
    yield _sized("residual stream, or its gradient", stream, shape.compute_bytes, _BOTH)
    if shape.compute_bytes != FLOAT_BYTES:
        yield _sized("input of a norm, or its gradient,", stream, FLOAT_BYTES, _BOTH)
    wide = {"tokens": shape.rows, "feed-forward columns": -(-model.ffn // shape.tp)}
    if model.experts:
        wide = {"tokens": shape.rows, "experts per token": model.experts_per_token} | wide
    yield _sized("feed-forward activation", wide, shape.compute_bytes, _BOTH)
    yield from _of_heads(model, run)


def _of_heads(model: Architecture, run: ModelRun) -> Iterator[Tensor]:
    if model.latent is not None:  # its heads have columns of several widths
        return
    shape = run.shape
    heads, kv_heads = model.heads // shape.tp, model.kv_heads // shape.tp
    counts = {"queries": heads, "keys or values": kv_heads}
    for name, count in counts.items():
        factors = {"tokens": shape.rows, "heads": count, "columns of a head": model.head_dim}
        yield _sized(name, factors, shape.compute_bytes, _BOTH)


def _of_attention(run: ModelRun) -> Iterator[Tensor]:
    """The score matrix, which a flash kernel never makes."""
    model, shape = run.architecture, run.shape
    flash = shape.attention is AttentionKind.FLASH
    implies = "attention is not the flash kernel that the settings name" if flash else ""
    scores = {
        "sequences": shape.microbatch,
        "heads": model.heads // shape.tp,
        "tokens": shape.seq,
        "tokens of keys": shape.seq,
    }
    for width in sorted({shape.compute_bytes, FLOAT_BYTES}):
        yield _sized("attention scores", scores, width, _BOTH, implies)
    mask = {"sequences": shape.microbatch, "tokens": shape.seq, "tokens of keys": shape.seq}
    masked = "a mask of full size is made" if flash else ""
    for width in sorted({1, shape.compute_bytes}):
        yield _sized("attention mask", mask, width, ("forward",), masked)


def _of_states(run: ModelRun) -> Iterator[Tensor]:
    """Model states as one buffer: shards, buckets, the whole model."""
    seen: set[tuple[str, int]] = set()
    for chain in run.stages:
        for tensor in _of_stage_states(chain, run.degrees):
            if (tensor.name, tensor.bytes) not in seen:
                seen.add((tensor.name, tensor.bytes))
                yield tensor


def _of_stage_states(chain: Chain, degrees: Degrees) -> Iterator[Tensor]:
    shard = {"parameters of the rank's shard": sum(block.unit.shard for block in chain.blocks)}
    whole = {"parameters": sum(block.unit.whole for block in chain.blocks)}
    if degrees.shards_optimizer:
        name = "the rank's shard: master copy, a moment, or the optimizer's temporary,"
        yield _sized(name, shard, FLOAT_BYTES, ("init", "optimizer"))
        yield _sized("the rank's shard: parameters or gradients", shard, 2, ("init", "backward"))
    if degrees.shards_optimizer and not degrees.shards_parameters:
        bucket = {"elements of a reduce bucket": chain.schedule.reduce_bucket_elements}
        for width in (2, FLOAT_BYTES):
            yield _sized("reduce bucket", bucket, width, ("init", "backward"))
    sharded = degrees.shards_parameters and degrees.shard_ranks > 1
    implies = "every rank makes the whole model before it is sharded" if sharded else ""
    for width in (2, FLOAT_BYTES):
        name = "the whole model as one buffer, or the optimizer's temporary for it,"
        yield _sized(name, whole, width, ("init", "optimizer"), implies)


def _of_parameters(run: ModelRun) -> Iterator[Tensor]:
    """Single weights, their gradients and moments."""
    seen: set[tuple[str, int]] = set()
    for unit in run.architecture.units:
        for parameter in unit.parameters:
            count = parameter.count_on(run.degrees.tp)
            if (parameter.name, count) in seen:
                continue
            seen.add((parameter.name, count))
            for width in (2, FLOAT_BYTES):
                name = f"weight {parameter.name}, its gradient or a moment of it,"
                yield _sized(name, {"elements": count}, width, ("init", "backward", "optimizer"))
