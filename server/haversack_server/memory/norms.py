"""Norms as tape operations: what eager PyTorch runs for each kind, kernel by kernel.

What each keeps was measured (torch 2.13.0 CPU, transformers 5.24); which variant of RMSNorm runs is
the kernel profile's word. A norm whose weight is frozen does not keep what its weight is multiplied
with. Knows nothing of where norms stand in a block.
"""

from dataclasses import dataclass

from haversack_server.memory.architecture import Norm
from haversack_server.memory.kernel_profile import KernelProfile, RmsNormKernel
from haversack_server.memory.parts import FLOAT_BYTES, cast
from haversack_server.memory.tape_builder import TapeBuilder


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is normalised: ``count`` rows of ``width`` elements, by ``weight`` numbers."""

    source: str
    count: int
    width: int
    weight: int

    @property
    def float_bytes(self) -> int:
        """Bytes of all elements in fp32."""
        return self.count * self.width * FLOAT_BYTES

    @property
    def statistic_bytes(self) -> int:
        """Bytes of one number in fp32 for each row."""
        return self.count * FLOAT_BYTES


def norm(
    tape: TapeBuilder,
    kind: Norm,
    profile: KernelProfile,
    source: str,
    rows: int,
    width: int,
    weight: int = 0,
) -> str:
    """Normalise ``rows`` rows of ``width`` elements; return the normalised storage.

    ``weight`` counts the elements of the norm's weight where they are more than ``width``.
    """
    given = _Rows(source, rows, width, weight or width)
    if kind is Norm.LAYER:
        return _layer_norm(tape, profile, given)
    if kind in (Norm.LAYER_PLAIN, Norm.LAYER_FLOAT):
        return _plain_layer_norm(tape, given) if kind is Norm.LAYER_PLAIN else _layer(tape, given)
    if profile.rms_norm is RmsNormKernel.FUSED:
        return _fused_norm(tape, "rms norm", given, given.statistic_bytes)
    if kind is Norm.RMS_FLOAT:
        return _float_rms_norm(tape, given)
    if kind is Norm.RMS_WIDE:
        return _wide_rms_norm(tape, given)
    if kind is Norm.RMS_MIXED:
        return _mixed_rms_norm(tape, given)
    if profile.rms_norm is RmsNormKernel.COMPOSITE:
        return _composite_rms_norm(tape, given)
    return _python_rms_norm(tape, given)


def _layer_norm(tape: TapeBuilder, profile: KernelProfile, given: _Rows) -> str:
    width = profile.layer_norm_statistic_bytes
    statistics = 2 * given.count * (tape.itemsize if width is None else width)
    if tape.autocast and tape.autocast.widens:
        wide = cast(tape, given.source, given.float_bytes)
        given = _Rows(wide, given.count, given.width, given.weight)
    return _fused_norm(tape, "layer norm", given, statistics)


def _fused_norm(tape: TapeBuilder, name: str, given: _Rows, statistics_bytes: int) -> str:
    result = tape.storage(name, tape.size(given.source), width=tape.width(given.source))
    statistics = tape.storage(f"{name} statistics", statistics_bytes, 0)
    tape.add(name, [given.source], [result, statistics], [given.source, statistics])
    return result


def _plain_layer_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``layer_norm(x32)`` without weights, cast back; the statistics are those of fp32."""
    wide = cast(tape, given.source, given.float_bytes)
    rows = _Rows(wide, given.count, given.width, 0)
    result = _fused_norm(tape, "layer norm", rows, 2 * given.statistic_bytes)
    return cast(tape, result, tape.size(given.source))


def _layer(tape: TapeBuilder, given: _Rows) -> str:
    """``weight32 * ((x32 - mean) * rsqrt(mean((x32 - mean) ** 2) + eps))``, as in Cohere's module.

    The difference is made twice, and both are kept: one by its square, one by its product.
    """
    size, small = given.float_bytes, given.statistic_bytes
    wide = cast(tape, given.source, size)
    with tape.frame() as frame:
        mean = tape.apply("mean", [wide], small)
        first = tape.apply("x - mean", [wide, mean], size)
        squares = tape.apply("square", [first], size, [first], backward_scratch_bytes=2 * size)
        variance = tape.apply("mean square", [squares], small)
        shifted = tape.passing("+ epsilon", [variance], small)
        root = tape.apply("reciprocal root", [shifted], small, saves_result=True)
        second = tape.apply("x - mean", [wide, mean], size)
        both = [second, root]
        scaled = tape.apply("scale by root", both, size, both, backward_scratch_bytes=size)
        weight = _wide_weight(tape, given.weight)
        frame += [mean, variance, scaled]
        product = tape.apply(
            "norm in fp32",
            [scaled],
            size,
            _with_weight(tape, scaled, weight),
            backward_scratch_bytes=size,
        )
        return cast(tape, product, tape.size(given.source))


def _wide_weight(tape: TapeBuilder, width: int) -> tuple[str, ...]:
    """A copy of the weight in fp32, where it is not in fp32."""
    if tape.itemsize == FLOAT_BYTES:
        return ()
    weight = tape.storage("weight in fp32", width * FLOAT_BYTES, 0)
    tape.add("weight in fp32", [], [weight])
    return (weight,)


def _with_weight(tape: TapeBuilder, scaled: str, weight: tuple[str, ...]) -> tuple[str, ...]:
    """What a product with the weight keeps: the weight, and the other operand to train it."""
    return (scaled, *weight) if tape.trains else weight


def _python_rms_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``weight * (x32 * rsqrt(mean(x32 ** 2) + eps)).to(dtype)``, as in Llama's module."""
    with tape.frame() as frame:
        scaled, variance = _scaled(tape, given, plus_epsilon=True)
        frame += [scaled, variance]
        low = cast(tape, scaled, tape.size(given.source))
        size = tape.wide_size(low)
        # The gradient of the weight is a product of full size before it is summed over rows.
        kept, scratch = ([low], size) if tape.trains else ([], 0)
        reads = [tape.widened(low)]
        width = tape.itemsize
        return tape.apply("norm", reads, size, kept, backward_scratch_bytes=scratch, width=width)


def _mixed_rms_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``weight * (x * rsqrt(mean(x32 ** 2) + eps)).to(dtype)``, as in T5's module."""
    size, small = given.float_bytes, given.statistic_bytes
    with tape.frame() as frame:
        wide = cast(tape, given.source, size)
        root, variance = _root(tape, wide, size, small, plus_epsilon=True)
        both = [given.source, root]
        scaled = tape.apply("scale by root", both, size, both, backward_scratch_bytes=size)
        frame.append(variance)
        low = cast(tape, scaled, given.count * given.width * tape.itemsize)
        kept, scratch = ([low], tape.size(low)) if tape.trains else ([], 0)
        return tape.apply("norm", [low], tape.size(low), kept, backward_scratch_bytes=scratch)


def _wide_rms_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``(weight * (x32 * rsqrt(mean(x32 ** 2) + eps))).to(dtype)``, as in OLMo 2's module."""
    with tape.frame() as frame:
        scaled, variance = _scaled(tape, given, plus_epsilon=True)
        frame += [scaled, variance]
        size = given.float_bytes
        kept, scratch = ([scaled], size) if tape.trains else ([], 0)
        product = tape.apply("norm in fp32", [scaled], size, kept, backward_scratch_bytes=scratch)
        return cast(tape, product, given.count * given.width * tape.itemsize)


def _float_rms_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``(x32 * rsqrt(mean(x32 ** 2) + eps) * (1 + weight32)).to(dtype)``, as in Gemma's module."""
    weight = tape.storage("1 + weight", given.width * FLOAT_BYTES, 0)
    with tape.frame() as frame:
        scaled, _ = _scaled(tape, given, plus_epsilon=True)
        tape.add("1 + weight", [], [weight])
        size = given.float_bytes
        kept = _with_weight(tape, scaled, (weight,))
        product = tape.apply("norm in fp32", [scaled], size, kept, backward_scratch_bytes=size)
        frame.append(product)
        return cast(tape, product, given.count * given.width * tape.itemsize)


def _composite_rms_norm(tape: TapeBuilder, given: _Rows) -> str:
    """``torch.nn.functional.rms_norm`` where no fused kernel takes it: two copies in fp32."""
    scaled, _ = _scaled(tape, given, plus_epsilon=False)
    size = given.float_bytes
    kept = [scaled] if tape.trains else []
    product = tape.apply("norm in fp32", [scaled], size, kept, backward_scratch_bytes=size)
    return cast(tape, product, given.count * given.width * tape.itemsize)


def weightless(tape: TapeBuilder, source: str, rows: int, width: int) -> str:
    """``(x32 * rsqrt(mean(x32 ** 2) + eps)).to(dtype)``, as Llama 4 normalises queries and keys."""
    given = _Rows(source, rows, width, 0)
    scaled, _ = _scaled(tape, given, plus_epsilon=True)
    return cast(tape, scaled, tape.size(source))


def _scaled(tape: TapeBuilder, given: _Rows, *, plus_epsilon: bool) -> tuple[str, str]:
    """Append ``x32 * rsqrt(mean(x32 ** 2) + eps)``; return it and the mean square."""
    size, small = given.float_bytes, given.statistic_bytes
    wide = cast(tape, given.source, size)
    root, mean = _root(tape, wide, size, small, plus_epsilon=plus_epsilon)
    both = [wide, root]
    scaled = tape.apply("scale by root", both, size, both, backward_scratch_bytes=size)
    return scaled, mean


def _root(
    tape: TapeBuilder, wide: str, size: int, small: int, *, plus_epsilon: bool
) -> tuple[str, str]:
    """Append ``rsqrt(mean(x32 ** 2) + eps)``; return it and the mean square."""
    # d(x^2) = 2 x: the power, its double and their product with the gradient are of full size.
    squares = tape.apply("square", [wide], size, [wide], backward_scratch_bytes=2 * size)
    mean = tape.apply("mean square", [squares], small)
    shifted = tape.passing("+ epsilon", [mean], small) if plus_epsilon else mean
    root = tape.apply(
        "reciprocal root", [shifted], small, backward_scratch_bytes=2 * small, saves_result=True
    )
    return root, mean
