"""What stands in front of a training script on a command line: torchrun's or accelerate's options.

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
    each = reader.whole("nproc-per-node", least=1, most=2**20)
    nodes = reader.whole("nnodes", "num-nodes", least=1, most=2**20)
    total = reader.whole("num-processes", least=1, most=2**24)  # accelerate launch
    own = reader.result(_QUIET)
    ranks, key = (total, "num-processes") if total else (each, "nproc-per-node")
    if ranks is not None and total is None:
        ranks *= nodes or 1
    settings = () if ranks is None else (Setting("parallelism.world_size", ranks, key),)
    return replace(
        reading,
        settings=(*reading.settings, *settings),
        ignored=(*reading.ignored, *(f"launcher.{key}" for key in own.ignored), *strays),
        silent=(*reading.silent, *(f"launcher.{key}" for key in own.silent)),
    )
