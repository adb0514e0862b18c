"""The largest run that has an answer: its figures travel as 64-bit integers.

Knows one sentence; what a figure means is for others.
"""

from collections import Counter

from haversack.errors import InvalidRequestError
from haversack_server.memory.chain import Chain, Option

MOST = 2**61  # bytes, or nanoseconds; what margins and states add stays below 2^63


def check_bounds(chain: Chain) -> None:
    """Refuse a chain whose blocks need more than can be written, whatever they save."""
    # Equal blocks share their options.
    counts = Counter(id(block.options) for block in chain.blocks)
    options = {id(block.options): block.options for block in chain.blocks}
    bytes_at_most = chain.states.steady_bytes + sum(
        counts[key] * max(map(_most_bytes, each)) for key, each in options.items()
    )
    ns_at_most = chain.step_ns + sum(
        counts[key] * max(option.extra_ns for option in each) for key, each in options.items()
    )
    for figure, unit in ((bytes_at_most, "bytes"), (ns_at_most, "nanoseconds")):
        if figure > MOST:
            sentence = (
                f"the run needs up to {float(figure):.3g} {unit}, more than can be written; give a "
                "smaller seq, microbatch or model"
            )
            raise InvalidRequestError(sentence, field="training.seq")


def _most_bytes(option: Option) -> int:
    return max(option.retained_bytes, option.forward_peak_bytes, option.backward_peak_bytes)


def check_peak(peak_bytes: int) -> None:
    """Refuse a peak that cannot be written: microbatches in flight multiply what blocks keep."""
    if peak_bytes > MOST:
        raise InvalidRequestError(
            f"a rank needs {float(peak_bytes):.3g} bytes, more than can be written; give fewer "
            "microbatches or pipeline stages",
            field="training.accumulation",
        )
