"""What users of PyTorch import: workloads, profiles, plans applied and checked, random replay.

Importing this package does not import torch: the first use of one of its names does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haversack.torch.applying import apply
    from haversack.torch.certifying import certify
    from haversack.torch.measured import Measured
    from haversack.torch.measuring import calibrate, measure
    from haversack.torch.profiling import profile
    from haversack.torch.replay import replay_context
    from haversack.torch.training_run import TrainingRun
    from haversack.torch.training_workload import TrainingWorkload
    from haversack.torch.workload import Workload

__all__ = [
    "Measured",
    "TrainingRun",
    "TrainingWorkload",
    "Workload",
    "apply",
    "calibrate",
    "certify",
    "measure",
    "profile",
    "replay_context",
]
# Modules are named otherwise than what they give: an import would put the module in its place.
_MODULES = {
    "Measured": "measured",
    "TrainingRun": "training_run",
    "TrainingWorkload": "training_workload",
    "Workload": "workload",
    "apply": "applying",
    "calibrate": "measuring",
    "certify": "certifying",
    "measure": "measuring",
    "profile": "profiling",
    "replay_context": "replay",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"haversack.torch.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
