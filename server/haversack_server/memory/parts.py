"""The small parts of a block as tape operations: casts, activations, dropout.

Each function appends what eager PyTorch runs, kernel by kernel, and returns the storage that holds
its result. What each keeps was measured (torch 2.13.0 CPU, transformers 5.24); which variant runs
is the kernel profile's word. Knows nothing of how parts make a block.
"""

from haversack_server.memory.architecture import Activation
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.tape_builder import TapeBuilder

FLOAT_BYTES = 4
INDEX_BYTES = 8


def cast(tape: TapeBuilder, source: str, size_bytes: int) -> str:
    """Convert to another width of number; nothing happens where the width is the same."""
    if tape.size(source) == size_bytes:
        return source
    size = tape.size(source)
    return tape.apply("cast", [source], size_bytes, width=tape.width(source) * size_bytes // size)


def activation(tape: TapeBuilder, kind: Activation, source: str) -> str:
    """Append the feed-forward activation; return its result."""
    size = tape.size(source)
    if kind is Activation.GELU_NEW:
        return _gelu_new(tape, source, size)
    if kind is Activation.GELU_BLOOM:
        return _gelu_bloom(tape, source, size)
    if kind is Activation.RELU:
        return tape.apply("relu", [source], size, saves_result=True)
    return tape.apply(str(kind), [source], size, [source])


def _gelu_new(tape: TapeBuilder, source: str, size: int) -> str:
    """``0.5 * x * (1 + tanh(c * (x + 0.044715 * x ** 3)))``, eight kernels in Python."""
    half = tape.apply("0.5 x", [source], size)
    size = tape.wide_size(source) if tape.autocast and tape.autocast.widens else size
    wide = cast(tape, source, size)
    cube = tape.apply("x^3", [wide], size, [wide], backward_scratch_bytes=2 * size)
    scaled = tape.apply("0.044715 x^3", [cube], size)
    inner = tape.passing("x + ...", [source, scaled], size)
    inner = tape.apply("sqrt(2/pi) ...", [inner], size)
    bounded = tape.apply("tanh", [inner], size, saves_result=True)
    outer = tape.passing("1 + tanh", [bounded], size)
    return tape.apply("gelu", [half, outer], size, [half, outer])


def _gelu_bloom(tape: TapeBuilder, source: str, size: int) -> str:
    """A function of its own, which keeps its input and works the derivative out in Python."""
    result = tape.storage("gelu", size)
    tape.add(
        "gelu",
        [source],
        [result],
        [source],
        forward_scratch_bytes=3 * size,
        backward_scratch_bytes=4 * size,
    )
    return result


def dropout(tape: TapeBuilder, profile: KernelProfile, rate: float, source: str) -> str:
    """Append dropout; at rate 0 nothing runs."""
    if not rate:
        return source
    size = tape.size(source)
    width = profile.dropout_mask_bytes
    each = tape.width(source)
    per_element = each if width is None else width
    result = tape.storage("dropout", size, width=each)
    mask = tape.storage("dropout mask", size // each * per_element, 0)
    tape.add("dropout", [source], [result, mask], [mask])
    return result
