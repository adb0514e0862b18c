"""A transformer layer as a tape: norms, attention, feed-forward, in the order that its family has.

A tape holds what one rank runs for one microbatch in eager PyTorch: attention and feed-forward are
split over ``tp`` tensor-parallel ranks; norms and the residual stream are whole on each, or split
along the sequence under sequence parallelism. Parameters and their gradients are not here.
"""

from dataclasses import replace

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.attention import Heads, Inputs, attention
from haversack_server.memory.blocks import Shape, enter, leave
from haversack_server.memory.experts import experts
from haversack_server.memory.experts_parallel import dispatch, dispatches
from haversack_server.memory.feed_forward import feed_forward
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.norms import norm
from haversack_server.memory.regions import EXPERTS, FEED_FORWARD, NORM
from haversack_server.memory.tape import Tape
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Residual, Stack


def layer_tape(model: Architecture, profile: KernelProfile, shape: Shape) -> Tape:
    """One layer of the model's kind, from the residual stream to the residual stream."""
    rows, autocast = shape.of(model.stack).stream_rows, shape.autocast(profile)
    size = rows * model.hidden * shape.compute_bytes
    tape = TapeBuilder("layer", shape.compute_bytes, size, model.tuning, autocast, shape.fp8)
    return tape.build(append_layer(tape, model, profile, shape, tape.input))


def append_layer(
    tape: TapeBuilder, model: Architecture, profile: KernelProfile, shape: Shape, stream: str
) -> str:
    """Append a layer that takes a residual stream; return the stream that it gives."""
    return _Layer(tape, model, profile, shape, stream).written()


class _Layer:
    """Writes a layer part by part; the parts share its tape, model, profile and shape."""

    def __init__(
        self,
        tape: TapeBuilder,
        model: Architecture,
        profile: KernelProfile,
        shape: Shape,
        stream: str,
    ) -> None:
        self.tape = tape
        self.input = stream
        self.model = model
        self.profile = profile
        self.shape = shape.of(model.stack)
        self.encoded_rows = shape.rows
        self.rows = self.shape.stream_rows
        self.size = self.rows * model.hidden * shape.compute_bytes
        self.undropped: list[str] = []

    def written(self) -> str:
        """Write the layer in its family's order."""
        ways = {
            Residual.PARALLEL: self.parallel,
            Residual.PARALLEL_NORMS: self.parallel,
            Residual.AFTER: self.after,
        }
        return ways.get(self.model.residual, self.sequential)()

    def sequential(self) -> str:
        """Attention and its residual, what crosses to an encoder, feed-forward and its residual."""
        before = self.model.residual is Residual.SEQUENTIAL
        with self.tape.frame() as frame:
            source = self.norm(self.input) if before else self.input
            result, held = self.attention(source)
            frame += held
            frame += [result] if self.model.branches_held else []
            frame += [source] if self.model.norms_held else []
            middle = self.residual(self.input, result)
            if self.model.stack is Stack.CROSS:
                middle = self.cross(middle, frame)
            source = self.norm(middle) if before else middle
            result = self.feed_forward(source)
            total = self.residual(middle, result)
            frame += [source] if self.model.branches_held else []
            return total

    def cross(self, middle: str, frame: list[str]) -> str:
        """Attend to the encoder's output, which is another unit's storage."""
        tape = self.tape
        encoded = self.encoded_rows * self.model.hidden * tape.itemsize
        memory = tape.outer("encoder output", encoded)
        result, held = self.attention(self.norm(middle), memory)
        frame += held
        return self.residual(middle, result)

    def parallel(self) -> str:
        """Both branches on one stream, with a norm for both or for each."""
        tape, two = self.tape, self.model.residual is Residual.PARALLEL_NORMS
        with tape.frame() as frame:
            source = self.norm(self.input)
            other = source if not two else ""
            if two and self.model.norms_held:
                other = self.norm(self.input)
            if other:
                frame += [source, other]
            first, held = self.attention(source)
            frame += [first, *held]
            second = self.feed_forward(other or self.norm(self.input))
            frame.append(second)
            both = tape.passing("both branches", [first, second], tape.size(first))
            return tape.passing("output", [both, self.input], self.size)

    def after(self) -> str:
        """The norm of the sum, after each branch."""
        tape = self.tape
        with tape.frame() as frame:
            result, held = self.attention(self.input)
            frame += held
            with tape.frame() as inner:
                inner.append(result)
                middle = self.norm(tape.passing("residual", [result, self.input], self.size))
            frame.append(middle)
            result = self.feed_forward(middle, frame)
            frame.append(result)
            return self.norm(tape.passing("output", [result, middle], self.size))

    def norm(self, source: str) -> str:
        """Normalise the residual stream."""
        kind, size = self.model.norm, self.model.hidden
        with self.tape.scoped(NORM):
            return norm(self.tape, kind, self.profile, source, self.rows, size)

    def residual(self, stream: str, result: str) -> str:
        """Add a branch to the stream, normalised or scaled before where the family does so."""
        tape = self.tape
        if self.model.sandwich_norms or self.model.residual is Residual.OUTPUT:
            with tape.frame() as frame:
                frame.append(result)
                branch = self.norm(result)
            return tape.passing("residual", [stream, branch], self.size)
        if not self.model.scaled_branches:
            with tape.frame() as frame:
                frame += self.undropped
                return tape.passing("residual", [stream, result], self.size)
        with tape.frame() as frame:
            frame.append(result)
            branch = tape.apply("scaled branch", [result], self.size)
            return tape.passing("residual", [stream, branch], self.size)

    def attention(self, source: str, memory: str = "") -> tuple[str, tuple[str, ...]]:
        """Attention between its collectives, with dropout; ``memory`` is attended to, if given."""
        tape, kept = self.tape, ""
        # Compressions on a rank's own tokens gather what they have made, not what they take.
        if not (self.model.latent and self.profile.latent_on_shards):
            source, kept = enter(tape, self.profile, self.shape, source)
        given = Inputs(source=source, memory=memory or source, kept=kept)
        heads = heads_of(self.model, self.shape)
        if memory:
            heads = replace(heads, key_seq=self.encoded_rows // self.shape.microbatch)
        result, held = attention(tape, self.model, self.profile, heads, given)
        result = leave(tape, self.shape, result, self.size)
        return self.dropped(result, source), held

    def feed_forward(self, source: str, frame: list[str] | None = None) -> str:
        """The feed-forward part between its collectives, with dropout.

        ``frame`` takes the active part where a variable of the layer names it.
        """
        tape = self.tape
        if self.model.experts and dispatches(self.shape, self.profile):
            return self.dispatched(source)
        with tape.scoped(EXPERTS if self.model.experts else FEED_FORWARD):
            source, kept = enter(tape, self.profile, self.shape, source)
            rows, ffn = self.shape.rows, -(-self.model.ffn // self.shape.tp)
            result = feed_forward(
                tape, self.model, self.profile, source, rows=rows, ffn=ffn, kept=kept, held=frame
            )
            result = leave(tape, self.shape, result, self.size)
        return self.dropped(result, source)

    def dropped(self, result: str, source: str = "") -> str:
        """Drop some of a branch; what is dropped from may be named until the branch is added."""
        self.undropped = [result] if self.model.undropped_held else []
        dropped = parts.dropout(self.tape, self.profile, self.model.residual_dropout, result)
        if self.tape.autocast and source:
            self.tape.hold([source])  # the layer names it, though the products kept copies of it
        return dropped

    def dispatched(self, source: str) -> str:
        """Experts on other ranks: each rank routes the tokens of its residual stream."""
        given = dispatch(self.model, self.shape)
        with self.tape.scoped(EXPERTS):
            sizes = {"rows": given.rows, "ffn": given.ffn}
            result = experts(self.tape, self.model, self.profile, source, **sizes, dispatched=given)
        return self.dropped(result)


def heads_of(model: Architecture, shape: Shape) -> Heads:
    """The attention of one rank."""
    return Heads(
        microbatch=shape.microbatch,
        seq=shape.seq,
        heads=model.heads // shape.tp,
        kv_heads=model.kv_heads // shape.tp,
        head_dim=model.head_dim,
        kind=shape.attention,
        value_dim=model.latent.value if model.latent else 0,
        cp=shape.cp,
        context_parallel=shape.context_parallel,
    )
