"""What users of PyTorch import: the ``Workload`` that Verify runs and Plan profiles.

Importing this package does not import torch: a factory's module does that when it is loaded.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haversack.torch.workload import Workload

__all__ = ["Workload"]


def __getattr__(name: str) -> Any:
    if name == "Workload":
        from haversack.torch.workload import Workload

        return Workload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
