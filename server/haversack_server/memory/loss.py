"""The loss on a tape: from logits, or from the last hidden states, to one number.

Which variant runs is the request's word, else the kernel profile's. Bytes at their height, per
logit, where the compute type has 2 bytes and logits are held to the end of the loss:

- PLAIN: log-softmax in the compute type: 4 in forward, 6 in backward;
- FP32: a copy in fp32 and its log-softmax: 10 in forward, 12 in backward (Hugging Face);
- FP32_IN_PLACE: one copy in fp32 that becomes softmax and then gradient: 6 and 6 (Megatron-LM,
  megatron/core/tensor_parallel/cross_entropy.py);
- IN_PLACE: the gradient takes the place of the logits: 2 and 2 (Liger-Kernel, Transformer Engine);
- CHUNKED: log-softmax in fp32, the copy chunk by chunk: 6 + 4 / n and 4 + 10 / n, since a chunk's
  log-softmax goes as its gradient comes (torchtune, modules/loss/ce_chunked_output_loss.py);
- FUSED_LINEAR: a chunk of logits at a time, gradients of hidden states and head made in forward
  (Liger-Kernel, src/liger_kernel/ops/fused_linear_cross_entropy.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from haversack.run import Loss
from haversack_server.memory import parts
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.tape_builder import TapeBuilder

HEIGHTS: Mapping[Loss, str] = {
    Loss.PLAIN: "logits, their log-softmax and gradients in the compute type; in backward three "
    "times the logits",
    Loss.FP32: "logits in the compute type and in fp32, their log-softmax and gradients in fp32; "
    "12 bytes per logit at the height of the loss's backward",
    Loss.FP32_IN_PLACE: "logits or their gradient in the compute type, and one copy in fp32 that "
    "becomes softmax; 4 bytes per logit and those of the compute type",
    Loss.IN_PLACE: "logits in the compute type, which become their gradient",
    Loss.CHUNKED: "logits in the compute type, their log-softmax in fp32, and copies of one chunk",
    Loss.FUSED_LINEAR: "logits of one chunk of tokens, and the gradients of hidden states and head",
}
CHUNKS = 8  # torchtune's default number of output chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """What the loss of one rank is made of: how many tokens in how many sequences, and how.

    ``split``: each rank has a part of every token's logits.
    """

    microbatch: int
    rows: int
    kind: Loss
    chunks: int
    split: bool = False


def kind_of(profile: KernelProfile, asked: Loss) -> Loss:
    """Give the variant that runs: the one that was asked for, else the framework's own."""
    return asked or Loss[profile.loss.upper()]


def cross_entropy(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    """Append the loss over whole logits; ``frame`` takes what is alive to its end."""
    made = _WHOLE[given.kind]
    return made(tape, profile, given, logits, frame)


def _copied(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    """``cross_entropy(logits.float(), targets)``: log-softmax, then the negative log-likelihood."""
    count = tape.size(logits) // tape.width(logits)
    wide = logits
    if profile.logit_upcast_bytes > tape.width(logits):
        wide = tape.apply("logits in fp32", [logits], count * profile.logit_upcast_bytes)
    frame.append(wide)
    targets = _targets(tape, given, frame)
    saved = tape.storage(
        "log-softmax", count * profile.logit_saved_bytes, count * profile.logit_gradient_bytes
    )
    scratch = count * profile.split_logit_scratch_bytes if given.split else 0
    return _likelihood(tape, wide, saved, targets, scratch)


def _plain(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    """Log-softmax in the type of the logits; autocast computes losses in fp32."""
    if tape.autocast:
        return _copied(tape, profile, given, logits, frame)
    targets = _targets(tape, given, frame)
    saved = tape.storage("log-softmax", tape.size(logits))
    return _likelihood(tape, logits, saved, targets)


def _likelihood(
    tape: TapeBuilder, source: str, saved: str, targets: str, scratch_bytes: int = 0
) -> str:
    tape.add("log-softmax", [source], [saved], [saved], backward_scratch_bytes=scratch_bytes)
    loss = tape.storage("loss", parts.FLOAT_BYTES)
    weight = tape.storage("total weight", parts.FLOAT_BYTES, 0)
    tape.add("negative log-likelihood", [saved], [loss, weight], [saved, targets, weight])
    return loss


def _copied_in_place(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    """One copy in fp32: less its maximum, exponential, softmax and gradient, all in place."""
    targets = _targets(tape, given, frame)
    count = tape.size(logits) // tape.width(logits)
    softmax = tape.storage("softmax in fp32", count * parts.FLOAT_BYTES, 0)
    return _one_kernel(tape, [logits], [softmax], [softmax, targets], 0)


def _in_place(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    targets = _targets(tape, given, frame)
    # The gradient takes the place of the saved logits, so it is no bytes of its own.
    return _one_kernel(tape, [logits], [], [logits, targets], -tape.size(logits))


def _chunked(
    tape: TapeBuilder, profile: KernelProfile, given: LossInput, logits: str, frame: list[str]
) -> str:
    """The copy in fp32 of one chunk at a time; every chunk's log-softmax is kept, or its logits."""
    targets = _targets(tape, given, frame)
    size = tape.size(logits)
    count = size // tape.width(logits)
    chunk = -(-count // given.chunks) * parts.FLOAT_BYTES
    saved = tape.storage("log-softmax", count * profile.logit_saved_bytes, 0)
    loss = tape.storage("loss", parts.FLOAT_BYTES)
    tape.add(
        "chunked cross-entropy",
        [logits],
        [loss, saved],
        [saved if profile.logit_saved_bytes else logits, targets],
        forward_scratch_bytes=chunk,
        # Of the gradient only a chunk is there while all that was saved still is.
        backward_scratch_bytes=2 * chunk - size + -(-size // given.chunks),
    )
    return loss


def _one_kernel(
    tape: TapeBuilder, reads: list[str], writes: list[str], saves: list[str], scratch_bytes: int
) -> str:
    loss = tape.storage("loss", parts.FLOAT_BYTES)
    tape.add("cross-entropy", reads, [loss, *writes], saves, backward_scratch_bytes=scratch_bytes)
    return loss


_Whole = Callable[[TapeBuilder, KernelProfile, LossInput, str, list[str]], str]
_WHOLE: Mapping[Loss, _Whole] = {
    Loss.PLAIN: _plain,
    Loss.FP32: _copied,
    Loss.FP32_IN_PLACE: _copied_in_place,
    Loss.IN_PLACE: _in_place,
    Loss.CHUNKED: _chunked,
}


def fused_linear(tape: TapeBuilder, given: LossInput, source: str, hidden: int, vocab: int) -> str:
    """Append head and loss as one kernel: ``rows x vocab`` logits exist a chunk at a time.

    Both gradients are made in forward and kept: that of the hidden states, and that of the head's
    weight, which is as large as the weight. Backward hands them on.
    """
    frame: list[str] = []
    targets = _targets(tape, given, frame)
    size = tape.size(source)
    states = tape.storage("gradient of hidden states", size, 0)
    weight = tape.storage("gradient of the head", vocab * hidden * tape.itemsize, 0)
    loss = tape.storage("loss", parts.FLOAT_BYTES)
    logits = -(-given.rows // given.chunks) * vocab
    tape.add(
        "fused linear cross-entropy",
        [source],
        [loss, states, weight],
        [states, weight, targets],
        # Logits of a chunk and their copy in fp32, which becomes their gradient.
        forward_scratch_bytes=logits * (tape.itemsize + parts.FLOAT_BYTES),
        backward_scratch_bytes=-size,
        flops=3 * 2 * given.rows * hidden * vocab,
        parameter_bytes=vocab * hidden * tape.itemsize,
    )
    return loss


def _targets(tape: TapeBuilder, given: LossInput, frame: list[str]) -> str:
    """The labels, padded by one and shifted: a view of one sequence, a copy of several."""
    padded = tape.storage("padded labels", (given.rows + given.microbatch) * parts.INDEX_BYTES, 0)
    tape.add("padded labels", [], [padded])
    frame.append(padded)
    if given.microbatch == 1:
        return padded
    shifted = tape.storage("shifted labels", given.rows * parts.INDEX_BYTES, 0)
    tape.add("shifted labels", [], [shifted])
    return shifted
