"""The built-in workloads: names, what each is an example of, its verdict, and its arguments.

Their code is in ``haversack_server.worker.zoo``, under the same names; a test holds both together.
"""

import difflib

from haversack.errors import InvalidRequestError
from haversack.verify import Facet, VerifyVerdict, WorkloadInfo
from haversack_server.verify.arguments import Argument, check_arguments

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
        "A convolution with BatchNorm: gradients are equal, the running statistics move twice",
        Facet.BUFFERS,
    ),
    WorkloadInfo(
        name="entropy-mask",
        category="nondeterminism",
        description="A mask from the operating system's entropy: no run repeats another",
        expected_verdict=VerifyVerdict.INCONCLUSIVE,
    ),
    _equivalent(
        "gpt2-tiny",
        "transformer",
        "A GPT-2-like transformer with dropout, each of its blocks a region of its own",
    ),
    _equivalent("mlp", "baseline", "A multilayer perceptron of which each block is a region"),
    _equivalent(
        "sine-dropout-square",
        "rng",
        "sin(x * w) on 8 points from -1 to 1 in float64, dropout 0.25, squared",
    ),
    _different(
        "sine-dropout-square-changed-setting",
        "state",
        "The same with a setting of its closure that changes between forward and backward",
        *_GRADIENTS,
    ),
    _equivalent(
        "sine-dropout-square-list-append",
        "side-effects",
        "The same with a list that the region appends to: one entry more for the replay",
        Facet.SIDE_EFFECTS,
    ),
    _equivalent(
        "sine-dropout-square-no-dropout",
        "baseline",
        "Without dropout: sin(x * w), squared",
    ),
    _different(
        "sine-dropout-square-no-preserve",
        "rng",
        "The same with preserve_rng_state=False: the replay draws another mask",
        *_GRADIENTS,
        Facet.RNG,
    ),
    _different(
        "sine-dropout-square-python-random",
        "rng",
        "With factors from Python's random in place of dropout; no replay restores it",
        *_GRADIENTS,
        Facet.RNG,
    ),
    _equivalent("sine-dropout-square-zero-input", "rng", "The same on 8 points that are all 0"),
)
WORKLOADS: dict[str, WorkloadInfo] = {entry.name: entry for entry in _ENTRIES}

# The bounds keep what one argument makes in memory; what several make together, the job's limit.
_WIDTH, _LAYERS, _BATCH = 1024, 64, 1024
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "conv-batchnorm": (
        Argument(name="channels", default=8, most=_WIDTH),
        Argument(name="size", default=8, least=2, most=256),  # one value has no variance
        Argument(name="batch", default=4, most=_BATCH),
    ),
    "entropy-mask": (
        Argument(name="width", default=16, most=_WIDTH),
        Argument(name="batch", default=4, most=_BATCH),
    ),
    "gpt2-tiny": (
        Argument(name="width", default=48, most=_WIDTH),
        Argument(name="layers", default=3, most=_LAYERS),
        Argument(name="heads", default=4, most=64, divides="width"),
        Argument(name="vocabulary", default=128, least=2, most=2**16),
        Argument(name="tokens", default=32, most=1024),
        Argument(name="batch", default=2, most=_BATCH),
    ),
    "mlp": (
        Argument(name="width", default=64, most=_WIDTH),
        Argument(name="layers", default=4, most=_LAYERS),
        Argument(name="batch", default=32, most=_BATCH),
    ),
}


def check_built_in(name: str, args_json: str) -> None:
    """Raise InvalidRequestError unless the workload is built in and takes the arguments."""
    check_known(name, field="workload.name")
    takes = ARGUMENTS.get(name, ())
    check_arguments(name, takes, args_json, field="workload.args_json")


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
