"""The shape of what a rank runs, its collectives, and the head with its loss as a tape.

A tape holds what one rank runs for one microbatch in eager PyTorch: attention, feed-forward and
logits are split over ``tp`` tensor-parallel ranks; norms and the residual stream are whole on each,
or split along the sequence under sequence parallelism. Parameters and their gradients are not here.
"""

from dataclasses import dataclass, replace

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel
from haversack.run import Loss, OffloadModule, RecomputeModule
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.autocast import Autocast
from haversack_server.memory.fp8 import Fp8
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.loss import CHUNKS, LossInput, cross_entropy, fused_linear, kind_of
from haversack_server.memory.norms import norm
from haversack_server.memory.parts import activation, dropout
from haversack_server.memory.tape import Tape
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Head, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one rank runs: ``microbatch`` sequences of ``seq`` tokens, in which dtype and kernels.

    ``compute_bytes`` is the bytes per element in forward and backward: 2 for bf16, 4 for fp32.
    ``target_seq`` is the length of a decoder's sequences beside an encoder's of ``seq``; 0 where it
    is the same. ``seq`` is a rank's share of the sequence under ``cp``. Four say how
    experts are divided and loaded; ``expert_tp`` is 0 where it is ``tp``, a capacity of 0 is none.
    ``recompute_modules`` are the parts that a layer's selective option runs again, if stated.
    ``product_bytes`` are those of a number in matrix products under autocast, 0 without it; ``fp8``
    says how products run in 8 bits, None that they do not. Of ``offload_modules`` what a layer
    keeps goes to the host.
    """

    microbatch: int
    seq: int
    compute_bytes: int = 2
    attention: AttentionKind = AttentionKind.FLASH
    tp: int = 1
    sequence_parallel: bool = False
    loss: Loss = Loss.UNSPECIFIED
    loss_chunks: int = CHUNKS
    loss_parallel: bool | None = None
    target_seq: int = 0
    cp: int = 1
    context_parallel: ContextParallel = ContextParallel.RING
    ep: int = 1
    expert_tp: int = 0
    expert_load_permille: int = 1000
    expert_capacity_permille: int = 0
    recompute_modules: tuple[RecomputeModule, ...] = ()
    product_bytes: int = 0
    fp8: Fp8 | None = None
    offload_modules: tuple[OffloadModule, ...] = ()

    def of(self, stack: Stack) -> "Shape":
        """Return the shape that a stack of layers sees."""
        if stack is not Stack.CROSS or not self.target_seq:
            return self
        return replace(self, seq=self.target_seq, target_seq=0)

    @property
    def rows(self) -> int:
        """Count the tokens of a microbatch."""
        return self.microbatch * self.seq

    def autocast(self, profile: KernelProfile) -> Autocast | None:
        """Say how matrix products convert, if they do."""
        if not self.product_bytes:
            return None
        return Autocast(self.product_bytes, widens=profile.autocast_widens)

    @property
    def logit_bytes(self) -> int:
        """Count the bytes of a logit."""
        return self.product_bytes or self.compute_bytes

    def splits_logits(self, profile: KernelProfile) -> bool:
        """Whether logits stay split over the tensor-parallel ranks through the loss."""
        asked = self.loss_parallel
        return profile.tensor_parallel_splits_logits if asked is None else asked

    @property
    def stream_rows(self) -> int:
        """Count the tokens whose residual stream this rank holds."""
        return -(-self.rows // self.tp) if self.sequence_parallel else self.rows


def check_shape(model: Architecture, shape: Shape) -> None:
    """Refuse what this model cannot run: a wrong degree, kernel or length."""
    for count, what in ((model.heads, "attention heads"), (model.kv_heads, "key/value heads")):
        if count % shape.tp:
            raise InvalidRequestError(
                f"tp={shape.tp} does not divide {count} {what};"
                f" use one of {_divisors(model.heads, model.kv_heads)}",
                field="parallelism.tp",
            )
    if shape.ep > 1 and not model.experts:
        raise InvalidRequestError(
            f"ep={shape.ep} divides experts, and {model.family} has none here; leave ep out",
            field="parallelism.ep",
        )
    if model.attention_softcap is not None and shape.attention is AttentionKind.SDPA:
        raise InvalidRequestError(
            f"attention=sdpa has no soft cap of scores, which {model.family} needs;"
            " use flash or eager",
            field="training.attention",
        )
    seq = shape.seq * shape.cp
    if model.learned_positions and seq > model.max_positions:
        raise InvalidRequestError(
            f"seq={seq} is longer than the {model.max_positions} learned positions;"
            f" use at most {model.max_positions}",
            field="training.seq",
        )


def _divisors(first: int, second: int) -> str:
    common = [str(n) for n in range(1, second + 1) if first % n == 0 and second % n == 0]
    return ", ".join(common)


def enter(tape: TapeBuilder, profile: KernelProfile, shape: Shape, source: str) -> tuple[str, str]:
    """Hand a normalised input to column-split products; return it, and what they save."""
    if shape.tp == 1:
        return source, ""
    if not shape.sequence_parallel:
        return tape.view("input of all ranks", source, tape.size(source), copies_gradient=True), ""
    whole = tape.apply("gathered input", [source], tape.size(source) * shape.tp)
    return whole, "" if profile.sequence_parallel_keeps_gathered else source


def leave(tape: TapeBuilder, shape: Shape, partial: str, size_bytes: int) -> str:
    """Sum the partial results of row-split products over the ranks."""
    if shape.tp == 1:
        return partial
    if not shape.sequence_parallel:
        return tape.passing("all-reduce", [partial], size_bytes)
    return tape.apply("reduce-scatter", [partial], size_bytes)


def head_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Final norm, logits and cross-entropy; its output is the loss."""
    shape = shape.of(model.stack)
    stream = shape.stream_rows
    size = stream * model.hidden * shape.compute_bytes
    autocast = shape.autocast(profile)
    tape = TapeBuilder("head", shape.compute_bytes, size, model.tuning, autocast)
    with tape.frame() as frame:
        source = before_logits(tape, model, profile, stream)
        if model.head is Head.CLASSIFIER:
            chosen = shape.microbatch * model.hidden * shape.compute_bytes
            source = tape.view("first token", source, chosen, copies_gradient=True)
        source, kept = enter(tape, profile, shape, source)
        frame.append(source)
        output = logits_and_loss(tape, model, profile, shape, source, kept)
    return tape.build(output)


def before_logits(tape: TapeBuilder, model: Architecture, profile: KernelProfile, rows: int) -> str:
    """What the last layer's output goes through: a norm, and more where the family has it."""
    source = tape.input
    if model.head is Head.MASKED:
        source = tape.linear("dense", source, rows, model.hidden, model.hidden)
        source = activation(tape, model.activation, source)
    if model.final_norm:
        source = norm(tape, model.norm, profile, source, rows, model.hidden)
    if model.head is not Head.SHIFTED:
        return source
    source = dropout(tape, profile, model.residual_dropout, source)
    return tape.apply("scaled", [source], tape.size(source)) if model.scaled_logits else source


def logits_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """The part of the head that is logits alone: what its input and its norm keep counts 0."""
    shape = shape.of(model.stack)
    tape = TapeBuilder("logits", shape.logit_bytes, 0, model.tuning)
    return tape.build(logits_and_loss(tape, model, profile, shape, tape.input, ""))


def logits_and_loss(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    shape: Shape,
    source: str,
    kept: str,
) -> str:
    """Append logits and loss of all tokens that enter; ``kept`` as for other products."""
    kind = _loss_of(model, profile, shape)
    rows = logit_rows(model, shape)
    given = LossInput(
        microbatch=shape.microbatch,
        rows=rows,
        kind=kind,
        chunks=shape.loss_chunks,
        split=shape.tp > 1 and shape.splits_logits(profile),
    )
    if kind is Loss.FUSED_LINEAR:
        vocab = -(-model.vocab // shape.tp)
        return fused_linear(tape, given, source, model.hidden, vocab)
    with tape.frame() as frame:
        logits = _logits(tape, model, profile, shape, source, kept)
        frame.append(logits)
        with tape.frame() as inner:
            return cross_entropy(tape, profile, given, logits, inner)


def _loss_of(model: Architecture, profile: KernelProfile, shape: Shape) -> Loss:
    """Only causal models of a framework have its own loss; the others call cross-entropy
    plainly."""
    plain = Loss.UNSPECIFIED if model.head is Head.CAUSAL else Loss.PLAIN
    return kind_of(profile, shape.loss or plain)


def logit_rows(model: Architecture, shape: Shape) -> int:
    """Count the tokens that have logits: all of them, or one of each sequence."""
    return shape.microbatch if model.head is Head.CLASSIFIER else shape.rows


def _outputs(model: Architecture) -> int:
    return model.labels if model.head is Head.CLASSIFIER else model.vocab


def logit_count(model: Architecture, profile: KernelProfile, shape: Shape) -> int:
    """Count the logits on one rank; none are ever whole where head and loss are fused."""
    if _loss_of(model, profile, shape) is Loss.FUSED_LINEAR:
        return 0
    shape = shape.of(model.stack)
    split = shape.tp if shape.splits_logits(profile) else 1
    return logit_rows(model, shape) * -(-_outputs(model) // split)


def _logits(
    tape: TapeBuilder,
    model: Architecture,
    profile: KernelProfile,
    shape: Shape,
    source: str,
    kept: str,
) -> str:
    vocab, rows = -(-_outputs(model) // shape.tp), logit_rows(model, shape)
    logits = tape.linear("logits", source, rows, model.hidden, vocab, saved=kept)
    size = logit_count(model, profile, shape) * shape.logit_bytes
    if shape.tp > 1 and not shape.splits_logits(profile):
        logits = tape.apply("gathered logits", [logits], size)
    if model.scaled_logits and model.head is Head.CAUSAL:
        logits = tape.apply("scaled logits", [logits], size)
    if model.final_softcap is None:
        return logits
    logits = tape.apply("logits / cap", [logits], size)
    logits = tape.apply("tanh", [logits], size, saves_result=True)
    return tape.apply("capped logits", [logits], size)
