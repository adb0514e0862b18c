"""The small parts of a block as tape operations: norms, activations, dropout, rotary positions.

Each function appends what eager PyTorch runs, kernel by kernel, and returns the storage that holds
its result. What each keeps was measured (torch 2.13.0 CPU, transformers 5.24); which variant runs
is the kernel profile's word. Knows nothing of how parts make a block.
"""

from haversack_server.memory.architecture import Activation, Norm
from haversack_server.memory.kernel_profile import KernelProfile, RmsNormKernel
from haversack_server.memory.tape_builder import TapeBuilder

FLOAT_BYTES = 4
INDEX_BYTES = 8


def norm(
    tape: TapeBuilder, kind: Norm, profile: KernelProfile, source: str, rows: int, width: int
) -> str:
    """Normalise ``rows`` rows of ``width`` elements; return the normalised storage."""
    if kind is Norm.LAYER:
        return _layer_norm(tape, profile, source, rows)
    if profile.rms_norm is RmsNormKernel.FUSED:
        return _fused_rms_norm(tape, source, rows)
    if kind is Norm.RMS_FLOAT:
        return _float_rms_norm(tape, source, rows, width)
    if profile.rms_norm is RmsNormKernel.COMPOSITE:
        return _composite_rms_norm(tape, source, rows, width)
    return _python_rms_norm(tape, source, rows, width)


def _layer_norm(tape: TapeBuilder, profile: KernelProfile, source: str, rows: int) -> str:
    width = profile.layer_norm_statistic_bytes
    statistics = 2 * rows * (tape.itemsize if width is None else width)
    return _fused_norm(tape, "layer norm", source, statistics)


def _fused_rms_norm(tape: TapeBuilder, source: str, rows: int) -> str:
    return _fused_norm(tape, "rms norm", source, rows * FLOAT_BYTES)


def _fused_norm(tape: TapeBuilder, name: str, source: str, statistics_bytes: int) -> str:
    result = tape.storage(name, tape.size(source))
    statistics = tape.storage(f"{name} statistics", statistics_bytes, 0)
    tape.add(name, [source], [result, statistics], [source, statistics])
    return result


def _python_rms_norm(tape: TapeBuilder, source: str, rows: int, width: int) -> str:
    """``weight * (x32 * rsqrt(mean(x32 ** 2) + eps)).to(dtype)``, as in Llama's module."""
    with tape.frame() as frame:
        scaled, variance = _scaled(tape, source, rows, width, plus_epsilon=True)
        frame += [scaled, variance]
        low = cast(tape, scaled, rows * width * tape.itemsize)
        # The gradient of the weight is a product of full size before it is summed over rows.
        return tape.apply(
            "norm", [low], tape.size(low), [low], backward_scratch_bytes=tape.size(low)
        )


def _float_rms_norm(tape: TapeBuilder, source: str, rows: int, width: int) -> str:
    """``(x32 * rsqrt(mean(x32 ** 2) + eps) * (1 + weight32)).to(dtype)``, as in Gemma's module."""
    weight = tape.storage("1 + weight", width * FLOAT_BYTES, 0)
    with tape.frame() as frame:
        scaled, _ = _scaled(tape, source, rows, width, plus_epsilon=True)
        tape.add("1 + weight", [], [weight])
        size = tape.size(scaled)
        product = tape.apply(
            "norm in fp32", [scaled], size, [scaled, weight], backward_scratch_bytes=size
        )
        frame.append(product)
        return cast(tape, product, rows * width * tape.itemsize)


def _composite_rms_norm(tape: TapeBuilder, source: str, rows: int, width: int) -> str:
    """``torch.nn.functional.rms_norm`` where no fused kernel takes it: two copies in fp32."""
    scaled, _ = _scaled(tape, source, rows, width, plus_epsilon=False)
    size = tape.size(scaled)
    product = tape.apply("norm in fp32", [scaled], size, [scaled], backward_scratch_bytes=size)
    return cast(tape, product, rows * width * tape.itemsize)


def _scaled(
    tape: TapeBuilder, source: str, rows: int, width: int, *, plus_epsilon: bool
) -> tuple[str, str]:
    """Append ``x32 * rsqrt(mean(x32 ** 2) + eps)``; return it and the mean square."""
    size, small = rows * width * FLOAT_BYTES, rows * FLOAT_BYTES
    wide = cast(tape, source, size)
    # d(x^2) = 2 x: the power, its double and their product with the gradient are of full size.
    squares = tape.apply("square", [wide], size, [wide], backward_scratch_bytes=2 * size)
    mean = tape.apply("mean square", [squares], small)
    shifted = tape.passing("+ epsilon", [mean], small) if plus_epsilon else mean
    root = tape.apply(
        "reciprocal root", [shifted], small, backward_scratch_bytes=2 * small, saves_result=True
    )
    scaled = tape.apply(
        "scale by root", [wide, root], size, [wide, root], backward_scratch_bytes=size
    )
    return scaled, mean


def cast(tape: TapeBuilder, source: str, size_bytes: int) -> str:
    """Convert to another width of number; nothing happens where the width is the same."""
    if tape.size(source) == size_bytes:
        return source
    return tape.apply("cast", [source], size_bytes)


def activation(tape: TapeBuilder, kind: Activation, source: str) -> str:
    """Append the feed-forward activation; return its result."""
    size = tape.size(source)
    if kind is Activation.GELU_NEW:
        return _gelu_new(tape, source, size)
    if kind is Activation.RELU:
        return tape.apply("relu", [source], size, saves_result=True)
    return tape.apply(str(kind), [source], size, [source])


def _gelu_new(tape: TapeBuilder, source: str, size: int) -> str:
    """``0.5 * x * (1 + tanh(c * (x + 0.044715 * x ** 3)))``, eight kernels in Python."""
    half = tape.apply("0.5 x", [source], size)
    cube = tape.apply("x^3", [source], size, [source], backward_scratch_bytes=2 * size)
    scaled = tape.apply("0.044715 x^3", [cube], size)
    inner = tape.passing("x + ...", [source, scaled], size)
    inner = tape.apply("sqrt(2/pi) ...", [inner], size)
    bounded = tape.apply("tanh", [inner], size, saves_result=True)
    outer = tape.passing("1 + tanh", [bounded], size)
    return tape.apply("gelu", [half, outer], size, [half, outer])


def dropout(tape: TapeBuilder, profile: KernelProfile, rate: float, source: str) -> str:
    """Append dropout; at rate 0 nothing runs."""
    if not rate:
        return source
    size = tape.size(source)
    width = profile.dropout_mask_bytes
    per_element = tape.itemsize if width is None else width
    result = tape.storage("dropout", size)
    mask = tape.storage("dropout mask", size // tape.itemsize * per_element, 0)
    tape.add("dropout", [source], [result, mask], [mask])
    return result


def rotary(tape: TapeBuilder, source: str) -> str:
    """Append ``x * cos + rotate_half(x) * sin``; the tables belong to the embedding unit."""
    size = tape.size(source)
    turned = tape.apply("x cos", [source], size)
    first = tape.view("first half", source, size // 2, copies_gradient=True)
    second = tape.view("second half", source, size // 2, copies_gradient=True)
    negative = tape.apply("- second half", [second], size // 2)
    swapped = tape.passing("rotate half", [negative, first], size)
    with tape.frame() as frame:
        frame.append(negative)
    across = tape.apply("rotated sin", [swapped], size)
    return tape.passing("rotary", [turned, across], size)
