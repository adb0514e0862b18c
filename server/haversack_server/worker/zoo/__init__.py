"""The built-in workloads, by the names of ``haversack_server.verify.catalog``.

Small cases register themselves where their modules are loaded; library models are built by name.
``FACTORIES`` are of equivalence jobs, ``TRAININGS`` of resume jobs.
"""

from collections.abc import Callable

from haversack.torch import Workload
from haversack_server.worker.zoo import (
    buffers,
    cache,
    convnet,
    entropy,
    experts,
    gpt2,
    hooks,
    inputs,
    layers,
    library,
    mlp,
    modes,
    nondeterminism,
    places,
    reentrant,
    rng,
    selective,
    side_effects,
    sine,
    state,
)
from haversack_server.worker.zoo.case import CASES
from haversack_server.worker.zoo.resume import TRAININGS

__all__ = ["FACTORIES", "TRAININGS"]

# Loading them is what fills CASES.
_FAMILIES = (
    buffers,
    cache,
    experts,
    hooks,
    inputs,
    layers,
    modes,
    nondeterminism,
    places,
    reentrant,
    rng,
    selective,
    side_effects,
    state,
)
FACTORIES: dict[str, Callable[..., Workload]] = {
    "conv-batchnorm": convnet.conv_batchnorm,
    "entropy-mask": entropy.entropy_mask,
    "gpt2-tiny": gpt2.gpt2_tiny,
    "mlp": mlp.mlp,
    "sine-dropout-square": sine.with_dropout,
    "sine-dropout-square-changed-setting": sine.with_changed_setting,
    "sine-dropout-square-list-append": sine.with_list_append,
    "sine-dropout-square-no-dropout": sine.without_dropout,
    "sine-dropout-square-no-preserve": sine.without_preserved_rng,
    "sine-dropout-square-python-random": sine.with_python_random,
    "sine-dropout-square-zero-input": sine.with_zero_input,
    **CASES,
    **library.FACTORIES,
}
