"""The ledger: every column of the timeline in words, with formula, inputs, source and axes.

Knows no numbers of its own; what it prints are the inputs that the chain was built from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from haversack.estimate import Term, TermCategory
from haversack.parallelism import PipelineSchedule
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.optimizers.kinds import KINDS
from haversack_server.memory.optimizers.words import moments_formula
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
    Column.ALL_REDUCE: "all-reduce buffers",
    Column.IN_FLIGHT: "microbatches in flight",
    Column.STAGE: "stage tensors",
    Column.SAVED: "saved activations",
    Column.RUNNING: "running block",
    Column.LOGITS: "logits and loss",
    Column.HELD: "logits held by the caller",
    Column.IN_FLIGHT: "microbatches in flight",
    Column.STAGE: "stage inputs",
    Column.WORKSPACES: "workspaces",
    Column.BATCH: "batch",
    Column.GRAPH: "inputs kept by the graph before",
    Column.WEIGHT_COPIES: "copies of weights in 8 bits",
    Column.ON_THE_WAY: "activations on their way",
    Column.CONVERSION: "quantizing weights",
}
_SCHEDULES = {
    PipelineSchedule.ONE_F_ONE_B: "1F1B: min(stages - stage, microbatches) in flight "
    "(arXiv 2104.04473, section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py)",
    PipelineSchedule.INTERLEAVED: "interleaved 1F1B: (stages - stage - 1) x 2 + (chunks - 1) x "
    "stages + 1 in flight (Megatron-LM, schedules.py, get_pp_rank_microbatches)",
    PipelineSchedule.GPIPE: "GPipe (arXiv 1811.06965): every microbatch of a step in flight",
}
_BOUNDARY = (
    "the kernel profile's pipeline constants: torch/distributed/pipelining/stage.py, or "
    "Megatron-LM's p2p_communication.py and TransformerBlock.input_tensor"
)


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
    logits_axes: tuple[str, ...] = ()


def state_terms(recipe: Recipe, degrees: Degrees, elements: int) -> dict[Column, Term]:
    """Describe parameters, gradients and optimizer state of ``elements`` parameters."""
    inputs = (f"parameters = {elements}", f"bytes per parameter = {recipe.formula}")
    sharded = {
        Column.PARAMETERS: degrees.shards_parameters,
        Column.GRADIENTS: degrees.shards_gradients,
    }
    terms = {}
    for column, (category, formula, source) in _words_of_states(recipe).items():
        divided = sharded.get(column, degrees.shards_optimizer) and degrees.shard_ranks > 1
        terms[column] = Term(
            name=NAMES[column],
            category=category,
            formula=formula,
            inputs=inputs,
            source=source,
            scales_with=("parameters",),
            sharded_over=((degrees.shard_axis,) if divided else ()) + degrees.splits_of_weights,
        )
    return terms


def _words_of_states(recipe: Recipe) -> dict[Column, tuple[TermCategory, str, str]]:
    """Give the category, the formula and the source of each."""
    each = "parameters of the rank x {} bytes".format
    gradients = f"{each(recipe.gradient)}, once their backward is done"
    temporaries = "tensors that the optimizer's kernel makes and frees within the step"
    optimizer, kind = TermCategory.OPTIMIZER, KINDS[recipe.optimizer]
    return {
        Column.PARAMETERS: (TermCategory.PARAMETER, each(recipe.parameter), recipe.source),
        Column.GRADIENTS: (TermCategory.GRADIENT, gradients, recipe.source),
        Column.MASTER: (optimizer, each(recipe.master), recipe.source),
        Column.MOMENTS: (optimizer, moments_formula(recipe), kind.source),
        Column.TEMPORARIES: (TermCategory.TRANSIENT, temporaries, recipe.source),
    }


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
        sharded_over=words.logits_axes,
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


def stage_terms(chain: Chain, words: Words) -> dict[Column, Term]:
    """Describe what a pipeline stage keeps beside the running microbatch."""
    pipeline = chain.pipeline
    at_once = pipeline.most_in_flight(chain.accumulation)
    several = len(pipeline.chunks) > 1
    what = "chunks of layers" if several else "microbatches"
    received = max((chunk.received_bytes for chunk in pipeline.chunks), default=0)
    in_flight = Term(
        name=NAMES[Column.IN_FLIGHT],
        category=TermCategory.ACTIVATION,
        formula=f"forwards of {what} whose backward is to come, less the running one, each x what "
        "it keeps",
        inputs=(
            f"stage = {pipeline.stage} of {pipeline.stages}",
            f"microbatches = {chain.accumulation}",
            f"{what} in flight = {at_once}",
        ),
        source=_SCHEDULES[pipeline.schedule],
        scales_with=("tokens per rank", "layers of a stage", "stages after this one"),
        sharded_over=words.axes,
    )
    stage = replace(
        in_flight,
        name=NAMES[Column.STAGE],
        formula="the input received from the stage before, shared tables, buffers to receive every "
        "microbatch into, and what stays of received inputs between two steps",
        inputs=(
            f"received bytes of a chunk = {received}",
            f"buffers to receive into = {pipeline.standing_bytes(chain.accumulation)}",
        ),
        source=_BOUNDARY,
        scales_with=("tokens per rank", "hidden size", "chunks of a stage", "microbatches"),
    )
    return {Column.IN_FLIGHT: in_flight, Column.STAGE: stage}


def standing_terms(chain: Chain, tokens: str, workspaces: str) -> dict[Column, Term]:
    """Describe what stands beside states and activations; ``workspaces`` is its source."""
    batch = Term(
        name=NAMES[Column.BATCH],
        category=TermCategory.ACTIVATION,
        formula="ids and labels of a microbatch, and a mask where the loader makes one",
        inputs=(f"tokens per rank = {tokens}",),
        source="8 bytes for each id and label (torch.int64)",
        scales_with=("tokens per rank",),
    )
    workspace = Term(
        name=NAMES[Column.WORKSPACES],
        category=TermCategory.TRANSIENT,
        formula="buffers of matrix products, inside the allocator from the first forward on",
        inputs=(f"bytes = {chain.workspace_bytes}",),
        source=workspaces,
    )
    graph = replace(
        batch,
        name=NAMES[Column.GRAPH],
        formula="inputs of quantized products that the graph of the microbatch before keeps after "
        "its backward, until a variable of the loop is given the next loss",
        source="bitsandbytes before 0.43.2, autograd/_functions.py, MatMul4Bit: ctx.tensors",
        scales_with=("tokens per rank", "layers"),
    )
    return {
        Column.BATCH: batch,
        Column.WORKSPACES: workspace,
        Column.GRAPH: graph,
        Column.WEIGHT_COPIES: _weight_copies(chain),
        Column.ON_THE_WAY: _on_the_way(tokens),
        **_quantizing(chain),
    }


def _on_the_way(tokens: str) -> Term:
    return Term(
        name=NAMES[Column.ON_THE_WAY],
        category=TermCategory.TRANSIENT,
        formula="what the host takes of one layer, on its way there or back",
        inputs=(f"tokens per rank = {tokens}",),
        source="NVIDIA/Megatron-LM, core/pipeline_parallel/fine_grained_activation_offload.py: "
        "copies run beside the layers, one group ahead in backward; a whole layer is assumed",
        scales_with=("tokens per rank",),
    )


def _quantizing(chain: Chain) -> dict[Column, Term]:
    if chain.loading is None:
        return {}
    return {
        Column.CONVERSION: Term(
            name=NAMES[Column.CONVERSION],
            category=TermCategory.TRANSIENT,
            formula=chain.loading.formula,
            inputs=(f"elements of the largest weight = {chain.loading.largest}",),
            source="pytorch/ao, torchao/dtypes/nf4tensor.py, and pytorch/torchtune, "
            f"lora_finetune_single_device.py: {chain.loading.quantizer.name}",
            scales_with=("elements of the largest weight", "parameters of a layer"),
        )
    }


def _weight_copies(chain: Chain) -> Term:
    return Term(
        name=NAMES[Column.WEIGHT_COPIES],
        category=TermCategory.TRANSIENT,
        formula="weights of matrix products in 8 bits, laid out for the product and for the "
        "gradient of its input",
        inputs=(f"bytes of 1,000 weights = {chain.recipe.weight_copies_permille}",),
        source="NVIDIA/TransformerEngine, transformer_engine/pytorch/module/base.py: copies are "
        "made in the first microbatch of a step and kept; one is enough from Blackwell on",
        scales_with=("parameters",),
        sharded_over=chain.degrees.splits_of_weights,
    )


def fill(words: Mapping[Column, Term], timeline: Timeline) -> tuple[tuple[Column, Term], ...]:
    """Give each described column its bytes at the peak and at its largest; leave out empty ones."""
    peak, largest = timeline.peak.bytes_by_column, timeline.largest
    return tuple(
        (column, replace(term, bytes=peak[column], largest_bytes=largest[column]))
        for column, term in sorted(words.items())
        if largest[column]
    )
