"""What users of PyTorch import: workloads, profiles, plans applied, random sources replayed.

Importing this package does not import torch: the first use of one of its names does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haversack.torch.applying import apply
    from haversack.torch.profiling import profile
    from haversack.torch.replay import replay_context
    from haversack.torch.workload import Workload

__all__ = ["Workload", "apply", "profile", "replay_context"]
# Modules are named otherwise than what they give: an import would put the module in its place.
_MODULES = {
    "Workload": "workload",
    "apply": "applying",
    "profile": "profiling",
    "replay_context": "replay",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"haversack.torch.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
