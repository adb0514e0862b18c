"""The ledger: every column of the timeline in words, with formula, inputs, source and axes.

Knows no numbers of its own; what it prints are the inputs that the chain was built from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from haversack.estimate import Term, TermCategory
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.recipe import Recipe
from haversack_server.memory.timeline import Column, Timeline

NAMES = {
    Column.PARAMETERS: "parameters",
    Column.GRADIENTS: "gradients",
    Column.MASTER: "master weights",
    Column.MOMENTS: "optimizer moments",
    Column.TEMPORARIES: "optimizer temporaries",
    Column.GATHERED: "gathered unit",
    Column.PREFETCHED: "prefetched units",
    Column.UNSHARDED_GRADIENTS: "unsharded gradients",
    Column.REDUCE: "reduce buffers",
    Column.SAVED: "saved activations",
    Column.RUNNING: "running block",
    Column.LOGITS: "logits and loss",
    Column.HELD: "logits held by the caller",
}
_FSDP = "PyTorch fully_shard, as its memory tracker shows it (torch 2.13.0)"
_DDP = "PyTorch DistributedDataParallel without gradient_as_bucket_view"
_DEEPSPEED = "DeepSpeed configuration: reduce_bucket_size, allocated at its full size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the ledger says of activations, which depend on the model and its kernels."""

    tokens: str
    source: str
    saved: str
    running: str
    logits: str
    held: str
    logits_inputs: tuple[str, ...] = ()
    logits_source: str = ""
    axes: tuple[str, ...] = ()


def state_terms(recipe: Recipe, degrees: Degrees, elements: int) -> dict[Column, Term]:
    """Describe parameters, gradients and optimizer state of ``elements`` parameters."""
    inputs = (f"parameters = {elements}", f"bytes per parameter = {recipe.formula}")
    split = (f"tp={degrees.tp}",) if degrees.tp > 1 else ()

    def term(name: str, category: TermCategory, formula: str, sharded: bool) -> Term:
        shard = (degrees.shard_axis,) if sharded and degrees.dp_shard > 1 else ()
        return Term(
            name=name,
            category=category,
            formula=formula,
            inputs=inputs,
            source=recipe.source,
            scales_with=("parameters",),
            sharded_over=shard + split,
        )

    optimizer = TermCategory.OPTIMIZER
    return {
        Column.PARAMETERS: term(
            NAMES[Column.PARAMETERS],
            TermCategory.PARAMETER,
            f"parameters of the rank x {recipe.parameter} bytes",
            degrees.shards_parameters,
        ),
        Column.GRADIENTS: term(
            NAMES[Column.GRADIENTS],
            TermCategory.GRADIENT,
            f"parameters of the rank x {recipe.gradient} bytes, once their backward is done",
            degrees.shards_gradients,
        ),
        Column.MASTER: term(
            NAMES[Column.MASTER],
            optimizer,
            f"parameters of the rank x {recipe.master} bytes",
            degrees.shards_optimizer,
        ),
        Column.MOMENTS: term(
            NAMES[Column.MOMENTS],
            optimizer,
            f"parameters of the rank x {recipe.moments} bytes, from the first optimizer step on",
            degrees.shards_optimizer,
        ),
        Column.TEMPORARIES: term(
            NAMES[Column.TEMPORARIES],
            TermCategory.TRANSIENT,
            f"parameters of the rank x {recipe.temporary} bytes during the optimizer step",
            degrees.shards_optimizer,
        ),
    }


def transient_terms(chain: Chain) -> dict[Column, Term]:
    """Describe what units take while they are gathered and reduced."""
    recipe, degrees = chain.recipe, chain.degrees
    whole = max(block.unit.whole for block in chain.blocks)
    largest = (f"parameters of the largest unit = {whole}",)
    both = ("forward", "backward")
    gathered = Term(
        name=NAMES[Column.GATHERED],
        category=TermCategory.TRANSIENT,
        formula=f"parameters of the running unit x {recipe.compute} bytes",
        inputs=largest,
        source=_FSDP,
        scales_with=("parameters of a unit",),
        gathered_in=both,
    )
    return {
        Column.GATHERED: gathered,
        Column.PREFETCHED: replace(
            gathered,
            name=NAMES[Column.PREFETCHED],
            formula=f"parameters of the next {chain.prefetch_units} x {recipe.compute} bytes",
        ),
        Column.UNSHARDED_GRADIENTS: replace(
            gathered,
            name=NAMES[Column.UNSHARDED_GRADIENTS],
            formula=f"parameters of the running unit x {recipe.compute} bytes until reduced",
            gathered_in=("backward",),
        ),
        Column.REDUCE: _reduce_term(chain, degrees, recipe, largest),
    }


def _reduce_term(chain: Chain, degrees: Degrees, recipe: Recipe, largest: tuple[str, ...]) -> Term:
    term = Term(name=NAMES[Column.REDUCE], category=TermCategory.TRANSIENT)
    if degrees.shards_parameters:
        return replace(
            term,
            formula=f"parameters of the unit before x {recipe.reduce} bytes, until it is reduced",
            inputs=largest,
            source=_FSDP,
            scales_with=("parameters of a unit",),
        )
    if degrees.shards_optimizer:
        return replace(
            term,
            formula=f"elements of one bucket x {recipe.gradient} bytes",
            inputs=(f"elements of a bucket = {chain.reduce_bucket_elements}",),
            source=_DEEPSPEED,
            scales_with=("bucket size",),
        )
    return replace(
        term,
        formula=f"parameters x {recipe.gradient} bytes: a second copy of the gradients",
        source=_DDP,
        scales_with=("parameters",),
    )


def activation_terms(words: Words) -> dict[Column, Term]:
    """Describe what blocks keep and add, and what the loss and its caller hold."""
    block = Term(
        name=NAMES[Column.SAVED],
        category=TermCategory.ACTIVATION,
        formula=words.saved,
        inputs=(f"tokens per rank = {words.tokens}",),
        source=words.source,
        scales_with=("tokens per rank", "layers"),
        sharded_over=words.axes,
    )
    loss = replace(
        block,
        inputs=words.logits_inputs,
        source=words.logits_source,
        scales_with=("tokens per rank", "vocabulary"),
        sharded_over=(),
    )
    transient = TermCategory.TRANSIENT
    return {
        Column.SAVED: block,
        Column.RUNNING: replace(
            block, name=NAMES[Column.RUNNING], category=transient, formula=words.running
        ),
        Column.LOGITS: replace(
            loss, name=NAMES[Column.LOGITS], category=transient, formula=words.logits
        ),
        Column.HELD: replace(loss, name=NAMES[Column.HELD], formula=words.held),
    }


def fill(words: Mapping[Column, Term], timeline: Timeline) -> tuple[tuple[Column, Term], ...]:
    """Give each described column its bytes at the peak and at its largest; leave out empty ones."""
    peak = timeline.peak.bytes_by_column
    largest = [max(values) for values in zip(*_columns(timeline), strict=True)]
    return tuple(
        (column, replace(term, bytes=peak[column], largest_bytes=largest[column]))
        for column, term in sorted(words.items())
        if largest[column]
    )


def _columns(timeline: Timeline) -> list[tuple[int, ...]]:
    return [moment.bytes_by_column for moment in timeline.moments]
