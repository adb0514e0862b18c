"""What stands in front of a training script: options of torchrun, accelerate launch or deepspeed.

The number of ranks is taken from them; everything else is named as ignored.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from haversack_server.memory.inputs.reader import Reader
from haversack_server.memory.inputs.reading import Reading, Setting, Source

_QUIET = (
    "standalone",
    "master-*",
    "node-rank",
    "rdzv-*",
    "max-restarts",
    "monitor-interval",
    "module",
    "no-python",
    "tee",
    "redirects",
    "log-dir",
    "role",
    "start-method",
)


def with_launcher(
    reading: Reading, values: Mapping[str, Any], strays: tuple[str, ...], source: Source
) -> Reading:
    """Add the launcher's ranks to what its command line says; ``strays`` belong to no option."""
    reader = Reader(values, source)
    # --num_gpus is deepspeed's (its launcher/runner.py), the other torchrun's.
    per_node = "num-gpus" if "num-gpus" in values else "nproc-per-node"
    each = reader.whole("nproc-per-node", "num-gpus", least=1, most=2**20)
    nodes = reader.whole("nnodes", "num-nodes", least=1, most=2**20)
    total = reader.whole("num-processes", least=1, most=2**24)  # accelerate launch
    own = reader.result(_QUIET)
    ranks, key = (total, "num-processes") if total else (each, per_node)
    if ranks is not None and total is None:
        ranks *= nodes or 1
    settings = () if ranks is None else (Setting("parallelism.world_size", ranks, key),)
    return replace(
        reading,
        settings=(*reading.settings, *settings),
        ignored=(*reading.ignored, *(f"launcher.{key}" for key in own.ignored), *strays),
        silent=(*reading.silent, *(f"launcher.{key}" for key in own.silent)),
    )
