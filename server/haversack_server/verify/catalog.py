"""The built-in workloads: names, what each is an example of, and the verdict it must have.

Their code is in ``haversack_server.worker.zoo``, under the same names; a test holds both together.
"""

import difflib

from haversack.errors import InvalidRequestError
from haversack.verify import Facet, VerifyVerdict, WorkloadInfo

_GRADIENTS = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)


def _equivalent(name: str, category: str, description: str, *different: Facet) -> WorkloadInfo:
    return WorkloadInfo(
        name=name,
        category=category,
        description=description,
        expected_verdict=VerifyVerdict.EQUIVALENT,
        expected_different=different,
    )


def _different(name: str, category: str, description: str, *different: Facet) -> WorkloadInfo:
    return WorkloadInfo(
        name=name,
        category=category,
        description=description,
        expected_verdict=VerifyVerdict.DIFFERENT,
        expected_different=different,
    )


_ENTRIES = (
    _different(
        "conv-batchnorm",
        "buffers",
        "A convolution with BatchNorm: gradients are equal, the running statistics move twice.",
        Facet.BUFFERS,
    ),
    WorkloadInfo(
        name="entropy-mask",
        category="nondeterminism",
        description="A mask from the operating system's entropy: no run repeats another.",
        expected_verdict=VerifyVerdict.INCONCLUSIVE,
    ),
    _equivalent(
        "gpt2-tiny",
        "transformer",
        "A GPT-2-like transformer with dropout, each of its blocks a region of its own.",
    ),
    _equivalent("mlp", "baseline", "A multilayer perceptron of which each block is a region."),
    _equivalent(
        "sine-dropout-square",
        "rng",
        "sin(x * w) on 8 points from -1 to 1 in float64, dropout 0.25, squared.",
    ),
    _different(
        "sine-dropout-square-changed-setting",
        "state",
        "The same with a setting of its closure that changes between forward and backward.",
        *_GRADIENTS,
    ),
    _equivalent(
        "sine-dropout-square-list-append",
        "side-effects",
        "The same with a list that the region appends to: one entry more for the replay.",
        Facet.SIDE_EFFECTS,
    ),
    _equivalent(
        "sine-dropout-square-no-dropout",
        "baseline",
        "Without dropout: sin(x * w), squared.",
    ),
    _different(
        "sine-dropout-square-no-preserve",
        "rng",
        "The same with preserve_rng_state=False: the replay draws another mask.",
        *_GRADIENTS,
        Facet.RNG,
    ),
    _different(
        "sine-dropout-square-python-random",
        "rng",
        "With factors from Python's random in place of dropout; no replay restores it.",
        *_GRADIENTS,
        Facet.RNG,
    ),
    _equivalent("sine-dropout-square-zero-input", "rng", "The same on 8 points that are all 0."),
)
WORKLOADS: dict[str, WorkloadInfo] = {entry.name: entry for entry in _ENTRIES}


def check_known(name: str, *, field: str) -> None:
    """Raise InvalidRequestError, with the nearest names, unless the workload is built in."""
    if name in WORKLOADS:
        return
    near = difflib.get_close_matches(name, WORKLOADS, n=3, cutoff=0.4) or sorted(WORKLOADS)[:3]
    raise InvalidRequestError(
        f"{name[:200]!r} is not a built-in workload; near it are {', '.join(near)}, and "
        "`haversack verify --list` has them all",
        field=field,
    )
