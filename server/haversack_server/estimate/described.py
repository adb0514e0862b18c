"""The words of a model's ledger: what its activations, logits and states are made of."""

from functools import lru_cache

from haversack.estimate import Term
from haversack_server.memory import ledger, loss
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.experts_parallel import dispatch, dispatches
from haversack_server.memory.model_run import ModelRun
from haversack_server.memory.schedule.terms import transient_terms
from haversack_server.memory.stretches import MOST_KEPT, Stretches, stretches_of
from haversack_server.memory.timeline import Column


def described(run: ModelRun, chain: Chain) -> dict[Column, Term]:
    """Describe every column that the timeline of a stage can fill."""
    elements = run.architecture.parameter_count
    states = ledger.state_terms(chain.recipe, chain.degrees, elements)
    words = _activations(run)
    activations = ledger.activation_terms(words) | ledger.stage_terms(chain, words)
    source = run.profile.constant("workspace_hopper_bytes").source
    standing = ledger.standing_terms(chain, words.tokens, source)
    return states | _transient(stretches_of(chain)) | activations | standing


@lru_cache(maxsize=MOST_KEPT)
def _transient(known: Stretches) -> dict[Column, Term]:
    """Describe what a schedule holds, once for all runs that share it."""
    return transient_terms(known.chain)


def _activations(run: ModelRun) -> ledger.Words:
    profile, shape = run.profile, run.shape
    kind = loss.kind_of(profile, shape.loss)
    logits = f"logits of a microbatch = {shape.rows} x {run.architecture.vocab}"
    return ledger.Words(
        tokens=f"{shape.microbatch} x {shape.seq}",
        source=f"kernel profile {profile.name}: {profile.title}",
        saved="what each block keeps from its forward to its backward, summed over blocks",
        running="what the running block adds: working tensors, gradients, recomputed activations"
        + _passing(run),
        logits=f"final norm, head and loss: {loss.HEIGHTS[kind]}{_predicting(run)}",
        held="logits x bytes of the compute type, alive while the caller keeps the model's output",
        logits_inputs=(logits, f"loss = {kind.name}"),
        logits_source=profile.constant("loss").source,
        axes=_axes(run.degrees),
        logits_axes=_axes(run.degrees, tp=shape.splits_logits(profile)),
    )


def _predicting(run: ModelRun) -> str:
    """Name what runs with the head beside it."""
    count = run.architecture.prediction_layers
    several = f"{count} layers that predict" if count > 1 else "the layer that predicts"
    return f"; and {several} further tokens, with logits of its own" if count else ""


def _passing(run: ModelRun) -> str:
    """Name what comes from other ranks and lives within a block."""
    passing = ""
    if run.degrees.cp > 1:
        passing += f"; keys and values of {run.degrees.cp} context-parallel ranks"
    if run.architecture.experts and dispatches(run.shape, run.profile):
        rows = dispatch(run.architecture, run.shape).arriving
        passing += f"; {rows} rows that arrive at a rank's experts"
    return passing


def _axes(degrees: Degrees, *, tp: bool = True) -> tuple[str, ...]:
    """Name the axes that divide a microbatch's activations; expert parallelism does not."""
    axes = {"tp": degrees.tp if tp else 1, "cp": degrees.cp}
    return tuple(f"{axis}={ranks}" for axis, ranks in axes.items() if ranks > 1)
