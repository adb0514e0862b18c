"""The head of a model that predicts further tokens: layers beside it, each with logits of its own.

Multi-token prediction as in DeepSeek V3 (arXiv 2412.19437, section 2.2) and Megatron-LM
(megatron/core/transformer/multi_token_prediction.py). Each layer takes the stream before it and the
embedding of the next token, normalises and joins both, projects them to one width and runs a
transformer layer; embedding and output weights are those of the model. The losses of all layers are
kept until the model's own loss is there. Knows nothing of weights, nor of stages.
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.blocks import Shape, before_logits, enter, leave, logits_and_loss
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.layers import append_layer
from haversack_server.memory.norms import norm
from haversack_server.memory.regions import Region
from haversack_server.memory.tape import OptionRow, Tape, measure_regions
from haversack_server.memory.tape_builder import TapeBuilder

# Benchmark of Estimate, section "moe, mla, cp, fsdp, t5, bert": four cases, 1.7 to 5.8 % low.
MORE_AT_THE_LOSS = (
    "layers that predict further tokens: three of four measured runs took 1.5 GiB more at the loss "
    "than is expected of them, as much as 4 bytes per logit, which no term has"
)
_STARTS, _ENDS = "prediction starts", "prediction ends"


def predicting_head(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """Final norm, the layers that predict further tokens, their losses, then the model's own."""
    size = shape.stream_rows * model.hidden * shape.compute_bytes
    autocast = shape.autocast(profile)
    tape = TapeBuilder("head", shape.compute_bytes, size, model.tuning, autocast, shape.fp8)
    return tape.build(_Head(tape, model, profile, shape).written())


def recomputed(tape: Tape) -> OptionRow:
    """Measure a head whose prediction layers run again in backward, each as one checkpoint.

    As Megatron-LM does it under full recomputation; logits and losses are kept.
    """
    regions, start = [], 0
    for index, operation in enumerate(tape.operations):
        if operation.name.startswith(_STARTS):
            start = index
        if operation.name.startswith(_ENDS):
            names = frozenset(each.name for each in tape.operations[start:index])
            regions.append(Region(start, names))
    return measure_regions(tape, regions, name="recompute")


class _Head:
    """Writes the head; its parts share tape, model, profile and shape."""

    def __init__(
        self, tape: TapeBuilder, model: Architecture, profile: KernelProfile, shape: Shape
    ) -> None:
        self.tape = tape
        self.model = model
        self.profile = profile
        self.shape = shape
        self.rows = shape.stream_rows

    def written(self) -> str:
        """All layers first, then their losses, as one forward of the model runs them."""
        source = before_logits(self.tape, self.model, self.profile, self.rows)
        streams = [source]
        with self.tape.frame() as frame:
            for _ in range(self.model.prediction_layers):
                streams.append(self.predicted(streams[-1]))
            frame += streams
            losses = [self.loss(stream) for stream in (*streams[1:], source)]
        return self.tape.passing("sum of losses", losses, parts.FLOAT_BYTES)

    def loss(self, stream: str) -> str:
        """Logits and loss of one stream; Python drops its logits with the loss."""
        source, kept = enter(self.tape, self.profile, self.shape, stream)
        with self.tape.frame() as frame:
            frame.append(source)
            return logits_and_loss(self.tape, self.model, self.profile, self.shape, source, kept)

    def predicted(self, stream: str) -> str:
        """One further token: what is joined and projected, a layer, and its norm."""
        self.tape.add(_STARTS)
        joined = self.joined(stream, self.embedded())
        layer = self.model.predictor
        made = append_layer(self.tape, layer, self.profile, self.shape, joined)
        made = self.norm(made)
        self.tape.add(_ENDS)
        return made

    def embedded(self) -> str:
        """Look up the next token of every place; the table's gradient is dense, and added up."""
        tape, model, shape = self.tape, self.model, self.shape
        size = shape.rows * model.hidden * tape.itemsize
        shifted = tape.storage("shifted tokens", shape.rows * parts.INDEX_BYTES, 0)
        looked_up = tape.storage("embedding of the next token", size)
        table = -(-model.vocab // shape.tp) * model.hidden * tape.itemsize
        tape.add("shifted tokens", [], [shifted])
        tape.add("embedding", [], [looked_up], [shifted], backward_scratch_bytes=table)
        return leave(tape, shape, looked_up, self.rows * model.hidden * tape.itemsize)

    def joined(self, stream: str, embedded: str) -> str:
        """Both normalised, side by side, projected by columns to one width, which is gathered."""
        tape, hidden, shape = self.tape, self.model.hidden, self.shape
        both = [self.norm(embedded), self.norm(stream)]
        pair = tape.apply("pair", both, self.rows * 2 * hidden * tape.itemsize)
        source, kept = enter(tape, self.profile, shape, pair)
        columns = -(-hidden // shape.tp)
        part = tape.linear("pair to one", source, shape.rows, 2 * hidden, columns, saved=kept)
        if shape.tp == 1:
            return part
        whole = tape.apply("gathered columns", [part], shape.rows * hidden * tape.itemsize)
        size = self.rows * hidden * tape.itemsize
        return tape.apply("own tokens", [whole], size) if shape.sequence_parallel else whole

    def norm(self, source: str) -> str:
        """Normalise the residual stream."""
        model = self.model
        return norm(self.tape, model.norm, self.profile, source, self.rows, model.hidden)
